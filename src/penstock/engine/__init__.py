"""The engine: what everybody who runs jobs does with a database, a worker, an executor worker of Spark, a stream.

link           a connection that is made anew when it is lost, and how long that is tried
conversation   one holder's turns over a link, and finding out what became of one whose answer was lost
source         where the next jobs come from: plain_source claims, owned_source has its owner choose, mixed_source both
owner          which jobs of the partitions that it owns start next
leased_jobs    reading the jobs of new leases
heartbeat      renews a holder's row
throttled_log  the same warning at most once a minute

Who *owns* partitions chooses from them; who *holds* leases renews, runs and settles. Both are rows of `worker`, and
mostly the same row. A user of the engine may own under one and act for many others that hold: each of them then has a
conversation of its own.
"""
