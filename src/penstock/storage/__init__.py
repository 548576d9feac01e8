"""The tables and every act on them, on one database. Nothing above this layer and `shards` speaks SQL.

connection  connections, queries by name, and what errors mean
schema      tables and functions, and how a database comes to a newer version of them
catalogue   what was declared: queues, crons, roles, access tokens
enqueue     writing jobs
work        claims, leases, settles, workers, owners
upkeep      what is done for all: promote, rescue, prune
loads       loads from Spark
history     history, and its way into a lake
inspect     what a person asks
repair      what a person does

The queries of a module are in the `.sql` file beside it.
"""

from penstock.storage.connection.database import Connection, Database

__all__ = ["Connection", "Database"]
