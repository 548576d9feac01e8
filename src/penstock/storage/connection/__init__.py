"""Connections: checking them out, watching them, and what an error of the server means.

database             connections to check out, and calls that are repeated when one breaks
pool                 the connections that are checked out and come back
connecting           making one, in the time that is left
flow                 a connection that is watched, and keeps the deadline of its call
flow_watch           which connections are dead, and the sessions they leave behind
breaker              whether a database answers
sessions             what became of a session that was cut off
listen               being woken
callers_transaction  acts in a transaction that is not ours
asyncpg_connection   how these are sent where asyncpg is the caller's driver
one_transaction      statements that are one transaction without BEGIN and COMMIT
bare_statements      statements that are sent again and again, without the driver's cursor
error_meaning        what an error means for whoever called: lost, denied, about data, of another schema
sqlstate, refusals   what each code means, and the names of the errors that others tell apart
urls                 reading and checking the URLs of databases
addresses            where a database is, apart from who connects
schema_name          which schema is meant
queries              the SQL of the program, by name
arrays               arrays and member bitmaps in PostgreSQL's text form
"""
