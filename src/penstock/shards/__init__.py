"""Several databases as one: what stands between `storage`, which knows one, and all who only want jobs to be somewhere.

Whoever runs one database needs to know of `databases` alone, and of that: everything is asked of the one there is.

the face
    databases         the databases of an app; the catalogue they share, and which of them leads
    side_by_side      the same question to all of them at once
    depths            where the fewest jobs wait, and which databases answer
    locating          where a job is
    callers           which database a caller's connection leads to
    shard_urls        the databases by their URLs, for processes that are told where they are

who belongs together
    membership        what a database is among the shards, and which its catalogue knows
    joining           how databases become the shards of one system, and are known again
    health            what a shard tells of itself, and whether several fit together
    ids               ids of all shards grow alike

what moves
    map_changes       a queue's map of keys changes: more partitions, or one that moves to another shard
    carrying          jobs follow their key to another shard
    idempotency_keys  so do idempotency keys
    former_homes      until they have: whoever writes one asks where it was before
    crons             cron entries live where their jobs go
    left_places       what waits at the place that a partition left, where only one may start jobs
    draining          everything leaves a shard

what spans several
    parents           children hear how parents on other shards ended
    publishing        a load becomes visible everywhere or nowhere
    load_commit       one try of that: prepare on every shard, then decide on one
    decided_loads     what follows on the others, and what is left where nothing was decided
    permits           how many jobs may run in each partition of a queue with a total_limit, or start with a total_rate
    access_tokens     who may come in on one may on all, and who may not on one may on none
    upkeep_duties     what of all this workers do over and over
"""

from penstock.shards.databases import Answers, Databases

__all__ = ["Answers", "Databases"]
