-- Where jobs are that have not ended, and what is known about them meanwhile.

create sequence @schema@.lease_number as bigint cache 1 no cycle;

-- What may run now. `pos` gives the order: the range number for new rows, kept by split and rescue. Spans lie within
-- 0 to 1,024; no CHECK says so here and on `lease`: it would cost each enqueue and claim a tenth of their time. Columns go
-- from wide to narrow: each lone call writes a row, and would write what lies between them too.
create table @schema@.ready (
    pos          bigint not null,
    range        bigint not null,
    -- Not now(): a caller's transaction may have begun long ago, and max_wait counts from here.
    ready_at     timestamptz not null default clock_timestamp(),
    partition_id int not null,
    priority     smallint not null,
    low          smallint not null,
    high         smallint not null,
    attempt      smallint not null default 1,
    rescues      smallint not null default 0,
    is_parked    boolean not null default false,
    members      bit(1024),
    -- Of one job that was set aside: why it cannot be read, or its end not be written. It waits for a person.
    reason       text,
    -- On queues with an owner: the transaction that wrote the row, by which the owner finds what is new, and the map
    -- its jobs were routed by; such a range holds jobs of any task, and `task` is empty.
    changed      xid8,
    epoch        int,
    task         text not null
) with (fillfactor = 80);

create index ready_in_order on @schema@.ready (partition_id, priority, pos) where not is_parked;
create index ready_of_range on @schema@.ready (range);
-- What was set aside lies last of its task, so that it is found among any number that wait for a worker.
create index ready_parked on @schema@.ready (partition_id, task, (reason is not null)) where is_parked;
create index ready_changed on @schema@.ready (partition_id, changed) where changed is not null;
create index ready_news on @schema@.ready (changed, partition_id) where changed is not null;
create index ready_of_epoch on @schema@.ready (partition_id, epoch) where epoch is not null;

-- For a person's looks at one queue. The first holds only rows that are not where they were enqueued (retried,
-- promoted, parked): it costs the path of a plain job nothing.
create index ready_out_of_order on @schema@.ready (partition_id, range) where pos <> range or is_parked;

-- What is running: a worker's numbered right to run a range. The number only grows: it is the fence.
create table @schema@.lease (
    id           bigint primary key default nextval('@schema@.lease_number'),
    -- Drawn at random by whoever claims, one a claim: numbers are given again after a failover or a restore, this is not.
    token        bigint not null,
    worker_id    bigint not null,
    partition_id int not null,
    priority     smallint not null,
    pos          bigint not null,
    range        bigint not null,
    low          smallint not null,
    high         smallint not null,
    members      bit(1024),
    attempt      smallint not null,
    rescues      smallint not null,
    is_ahead     boolean not null,
    ready_at     timestamptz not null,
    claimed_at   timestamptz not null default now(),
    epoch        int,
    task         text not null,
    -- A number that only the leases of one batch bear, where a handler is given their jobs together; null: each alone.
    batch        bigint
) with (fillfactor = 80);

create index lease_of_range on @schema@.lease (range);

comment on column @schema@.lease.is_ahead is
    'Claimed beyond the free slots: its jobs may not have started, so a crash alone never dead-letters them.';

-- What waits for a time: delays and retries.
create table @schema@.scheduled (
    due_at       timestamptz not null,
    partition_id int not null,
    priority     smallint not null,
    range        bigint not null,
    low          smallint not null,
    high         smallint not null,
    members      bit(1024),
    attempt      smallint not null default 1,
    rescues      smallint not null default 0,
    -- Of a retry that keeps its order and holds its key until it runs; null: it gets one when it is due.
    pos          bigint,
    epoch        int,
    task         text not null,
    constraint scheduled_span_is_within_its_range check (0 <= low and low < high and high <= 1024)
);

create index scheduled_by_due_time on @schema@.scheduled (due_at);
create index scheduled_of_range on @schema@.scheduled (range);
create index scheduled_of_partition on @schema@.scheduled (partition_id, range);
create index scheduled_holding on @schema@.scheduled (partition_id, epoch) where pos is not null;

-- What waits for other jobs.
create table @schema@.blocked (
    job_id            bigint primary key,
    partition_id      int not null,
    priority          smallint not null,
    task              text not null,
    run_at            timestamptz,
    on_parent_failure text not null,
    parents           bigint[] not null,
    -- Cancelled for now: since when a parent is a dead letter, or cancelled for now itself. It shows as cancelled and is
    -- counted nowhere; it waits again where that parent is retried, and is history where the parent is purged.
    cancelled_at      timestamptz,
    -- It was cancelled for now at least once, and is counted as cancelled: one that comes back is not counted again.
    was_cancelled     boolean not null default false,
    constraint blocked_knows_what_a_failed_parent_means check (on_parent_failure in ('cancel', 'run', 'wait')),
    constraint only_who_is_to_be_cancelled_is check (cancelled_at is null or on_parent_failure = 'cancel'),
    constraint who_is_cancelled_was check (cancelled_at is null or was_cancelled)
);

create index blocked_of_partition on @schema@.blocked (partition_id, job_id);

create table @schema@.dependency (
    parent_id bigint not null,
    child_id  bigint not null,
    -- Whether the parent is on another shard: its end is asked for there.
    is_elsewhere boolean not null default false,
    primary key (parent_id, child_id)
);

create index dependency_elsewhere on @schema@.dependency (parent_id) where is_elsewhere;

-- The ends of parents on other shards, for as long as a child here waits. One that is not final is asked for again: the
-- parent is a dead letter there, or cancelled for now.
create table @schema@.parent_end (
    job_id        bigint primary key,
    has_succeeded boolean not null,
    is_final      boolean not null,
    constraint success_is_final check (is_final or not has_succeeded)
);

-- Parents here that children on other shards wait for: how they end is kept until it was heard there.
create table @schema@.awaited (
    parent_id  bigint not null,
    shard      smallint not null,
    -- When a call last asked whether the parent may be waited for: its child may not have been written yet.
    checked_at timestamptz,
    primary key (parent_id, shard)
);

-- What a partition's rate has left: the newest row says when its bucket would be full again, and how many jobs have started
-- there by a rate or a total_rate. Rows are added, never changed: a row changed all the time is slow behind a long
-- transaction.
create table @schema@.spent (
    partition_id int not null,
    id           bigint generated always as identity,
    full_at      timestamptz not null,
    starts       bigint not null default 0,
    primary key (partition_id, id)
);

-- Partitions whose owner found nothing that could start, as of a snapshot: only what came since may be work.
create table @schema@.idle_partition (
    partition_id int primary key references @schema@.partition,
    as_of        pg_snapshot not null,
    -- Where that is a snapshot of: on another server its numbers mean other transactions.
    server       text not null
);

-- Idempotency keys, asks to stop, progress.
create table @schema@.dedup (
    queue_id        int not null,
    idempotency_key text not null,
    job_id          bigint not null,
    -- Its job is on another shard: it is forgotten when the job is forgotten there.
    is_carried      boolean not null default false,
    -- It is that of a job that is unique while it waits: another job takes it over when this one does not wait any more.
    is_unique       boolean not null default false,
    primary key (queue_id, idempotency_key)
);

create index dedup_of_job on @schema@.dedup (job_id);
create index dedup_carried on @schema@.dedup (job_id) where is_carried;
create index dedup_unique on @schema@.dedup (job_id) where is_unique;

create table @schema@.cancellation (
    job_id       bigint primary key,
    requested_at timestamptz not null default now(),
    reason       text
);

create table @schema@.progress (
    job_id bigint primary key,
    value  real,
    note   text,
    at     timestamptz not null default now()
);

create table @schema@.cron (
    name       text primary key,
    expression text not null,
    timezone   text not null,
    queue_id   int not null references @schema@.queue,
    task       text not null,
    key        bytea,
    args       json not null,
    is_paused  boolean not null default false,
    next_at    timestamptz not null,
    last_at    timestamptz,
    created_at timestamptz not null default now(),
    -- The job that it enqueued last, at its time or by hand.
    last_job   bigint,
    -- An entry lives on the shard its jobs go to. One that is leaving fires no more; of two of a name the one that moved
    -- more often counts.
    is_leaving boolean not null default false,
    moves      int not null default 0
);

create index cron_by_next_time on @schema@.cron (next_at) where not is_paused and not is_leaving;

-- What a claim gives: of a lease, what its worker needs to know.
create type @schema@.claimed as (
    id bigint, partition_id int, priority smallint, pos bigint, range bigint, low smallint, high smallint, members bit(1024),
    attempt smallint, rescues smallint, is_ahead boolean, ready_at timestamptz, task text,
    batch bigint);

-- A job of a lease.
create type @schema@.leased_job as (lease_id bigint, position smallint);
