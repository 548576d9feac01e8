-- What ended, and the counts.

-- What ended. One row for what one settle ended of one lease in one way, the facts of its jobs in arrays;
-- `finished_job` unfolds them. Dropped slice by slice.
create table @schema@.finished (
    slice        int not null,
    range        bigint not null,
    partition_id int not null,
    outcome      smallint not null,
    attempt      smallint not null,
    finished_at  timestamptz not null default now(),
    worker       text,
    positions    smallint[] not null,
    start_ages   bigint[],
    run_times    bigint[],
    results      json[],
    errors       text[],
    reason       text,
    constraint outcome_is_known check (outcome between 0 and 4)
) partition by list (slice);

create index finished_of_range on @schema@.finished (range);

comment on column @schema@.finished.start_ages is 'Microseconds from start to finished_at, job by job.';
comment on column @schema@.finished.run_times is 'Microseconds a handler ran, job by job.';

comment on column @schema@.finished.reason is 'Why they were cancelled or expired, all of them; what differs from job to job is in errors.';

create table @schema@.slice (
    number          int primary key,
    used_from       timestamptz,
    is_detached     boolean not null default false,
    writers         text[],
    taken_at        timestamptz,
    counts          bigint[],
    kept_pages      int not null default 0,
    forgotten_pages int not null default 0
);

comment on column @schema@.slice.is_detached is 'It is being let go: what is kept of it was moved, nobody needs the rest.';
comment on column @schema@.slice.writers is 'The transactions in progress when it was passed; null before.';
comment on column @schema@.slice.taken_at is 'When an archive took it: from then on only an archive lets it go.';
comment on column @schema@.slice.counts is 'Rows by outcome when it was sealed.';

-- Dead letters: work, not history.
create table @schema@.dead (
    job_id       bigint primary key,
    partition_id int not null,
    task         text not null,
    attempt      smallint not null,
    started_at   timestamptz,
    failed_at    timestamptz not null default now(),
    worker       text,
    error        text,
    -- What it died of (@schema@.cause_of); the tally of causes counts it.
    cause        bigint not null
);

create index dead_of_partition on @schema@.dead (partition_id, job_id);
create index dead_by_time on @schema@.dead (failed_at, job_id);
create index dead_of_cause on @schema@.dead (cause, job_id);
create index dead_of_cause_by_time on @schema@.dead (cause, failed_at, job_id);

create table @schema@.failure (
    job_id  bigint not null,
    attempt smallint not null,
    at      timestamptz not null default now(),
    worker  text,
    error   text not null
);

create index failure_of_job on @schema@.failure (job_id, attempt);

-- What a person changed of a dead letter's arguments when it was retried: what they were before, by whom and when.
create table @schema@.edit (
    job_id    bigint not null,
    at        timestamptz not null default clock_timestamp(),
    edited_by text not null,
    args      json not null
);

create index edit_of_job on @schema@.edit (job_id, at);

-- Keys that wait for a person, since a job of theirs is a dead letter.
create table @schema@.halted (
    queue_id int not null references @schema@.queue,
    key      bytea not null,
    job_id   bigint not null,
    -- The map of keys that the job was routed by.
    epoch    int not null,
    since    timestamptz not null default now(),
    primary key (queue_id, key)
);
create index halted_by_time on @schema@.halted (queue_id, since, key);

-- Depth and lifetime totals: one appended row a transaction, folded by upkeep. No counter row on anybody's path. Null is
-- nothing, and takes no room: most rows have two figures.
create table @schema@.tally (
    partition_id int not null,
    opened       int,
    scheduled    int,
    blocked      int,
    dead         int,
    enqueued     int,
    completed    int,
    failed       int,
    cancelled    int,
    discarded    int,
    expired      int
);

create table @schema@.total (
    partition_id int primary key references @schema@.partition,
    opened       bigint not null default 0,
    scheduled    bigint not null default 0,
    blocked      bigint not null default 0,
    dead         bigint not null default 0,
    enqueued     bigint not null default 0,
    completed    bigint not null default 0,
    failed       bigint not null default 0,
    cancelled    bigint not null default 0,
    discarded    bigint not null default 0,
    expired      bigint not null default 0
) with (fillfactor = 50);

comment on column @schema@.total.opened is 'Jobs ready or leased.';

-- The figures of each partition once a minute, kept for a day: what stood there, and the totals by then.
create table @schema@.minute (
    minute       timestamptz not null,
    partition_id int not null references @schema@.partition,
    -- When that was; the minute itself is where the rows of several shards meet.
    noted_at     timestamptz not null default now(),
    -- The minute that was noted before, from which the counts of this one are reckoned.
    previous     timestamptz,
    waiting      bigint not null default 0,
    running      bigint not null default 0,
    scheduled    bigint not null default 0,
    blocked      bigint not null default 0,
    dead         bigint not null default 0,
    oldest_wait_seconds double precision,
    enqueued     bigint not null default 0,
    completed    bigint not null default 0,
    failed       bigint not null default 0,
    cancelled    bigint not null default 0,
    discarded    bigint not null default 0,
    expired      bigint not null default 0,
    primary key (minute, partition_id)
);

-- How many jobs of a queue waited, and ran, for how long, as each process told it once a minute; then added up, and kept for a
-- day. Buckets are those of penstock.policy.histogram, up to the last one with anything in it.
create table @schema@.minute_histogram (
    minute    timestamptz not null,
    queue_id  int not null references @schema@.queue,
    waits     int[] not null,
    runs      int[] not null,
    is_folded boolean not null default false
);
create index minute_histogram_by_minute on @schema@.minute_histogram (minute, queue_id);
create index minute_histogram_appended on @schema@.minute_histogram (minute) where not is_folded;
