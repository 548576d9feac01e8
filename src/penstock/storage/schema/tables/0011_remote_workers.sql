-- Workers far away, for which servers act.

-- A remote worker as it stands on this database; its leases are those of its row of `worker`. Its polls bear numbers that
-- grow by one. Of the last one it is kept what came of it here, so that the same poll, at whichever server, is answered the same.
create table @schema@.remote_worker (
    -- What it is called by its servers; the same on every shard.
    id               bigint primary key,
    -- Its row of `worker` here. No key refers to it: whoever declares a worker dead must not wait for a poll of it.
    worker_id        bigint not null unique,
    registration     json not null,
    -- The shortest timeout among its tasks, in seconds; null: none has one.
    shortest_timeout double precision,
    -- The last poll; the request that may act for it, by a random number; and whether what it says is final.
    number           bigint not null default 0,
    request          bigint not null default 0,
    is_done          boolean not null default true,
    -- How many ends it named here, the jobs of those that were not held any more, and the leases that it was given.
    ends             int not null default 0,
    lost             json not null default '[]',
    claimed          json not null default '[]',
    -- Further jobs that it was told of as lost: they were taken away from it.
    taken_away       json not null default '[]',
    -- Leases that it may hold: all that it was ever given, but for those that were seen to be gone.
    leases           bigint[] not null default '{}',
    -- How many of its jobs ended in the minute that its last poll with an end was in, and in the minute before that one; of
    -- these, how many failed.
    counted_in       timestamptz not null default '-infinity',
    ended_now        int not null default 0,
    ended_before     int not null default 0,
    failed_now       int not null default 0,
    failed_before    int not null default 0,
    -- By shard, the number of the first poll since when polls were answered without it.
    without          json not null default '{}'
) with (fillfactor = 50);

-- Jobs that were taken away from remote workers, since they ran for too long, until those have heard of it.
create table @schema@.taken_away (
    remote_id bigint not null,
    lease_id  bigint not null,
    token     bigint not null,
    job_id    bigint not null,
    -- The poll whose answer told it; null: none has yet.
    told_in   bigint,
    primary key (remote_id, lease_id, job_id)
);
