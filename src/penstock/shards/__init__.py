"""Several databases as one: what stands between `storage`, which knows one, and all who only want jobs to be somewhere.

Whoever runs one database needs to know `databases` of it, and there that everything is asked of that one.

databases         the databases of an app, behind one face; the catalogue they share, and which of them leads
identity          what a database is among the shards, and which its catalogue knows
joining           how databases become the shards of one system, and are known again
ids               ids of all shards grow alike
depths            where the fewest jobs wait, and which shards answer
map_changes       a queue's map of keys changes: more partitions, or one that moves to another shard
carrying          jobs follow their key to another shard
idempotency_keys  so do idempotency keys
former_homes      until they have: whoever writes one asks where it was before
parents           children hear how parents on other shards ended
crons             cron entries live where their jobs go
publishing        a load over several shards becomes visible everywhere or nowhere
draining          everything leaves a shard
health            what a shard tells of itself
duties            what of all this workers do over and over
"""

from penstock.shards.databases import Answers, Shards

__all__ = ["Answers", "Shards"]
