"""The tables and every act on them. Nothing above this layer speaks SQL, nothing but this layer knows the driver.

database    connections, and what to do when one breaks
schema      tables and functions, and how a database comes to a newer version of them
catalogue   queues, partitions, tasks
enqueue     writing jobs
claim       ready ranges become leases
settle      what became of leased jobs
workers     who is alive, asleep, asked to stop
sweep       upkeep's acts
"""

from penstock.storage.database import Connection, Database

__all__ = ["Connection", "Database"]
