"""Connections: lending them, watching them, and what an error of the server means.

database             connections to lend, and what to do when one breaks
flow                 a connection that is watched while somebody waits for an answer on it
breaker              whether a database answers
sessions             what became of a session that was cut off
listen               being woken
callers_transaction  acts in a transaction that is not ours
sqlstate, refusals   what each error means, and the names of those that others tell apart
addresses            where a database is, apart from who connects
schema_name          which schema is meant
queries              the SQL of the program, by name
arrays               arrays and member bitmaps in PostgreSQL's text form
"""
