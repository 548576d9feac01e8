-- breaking: no
-- The tables, by what they hold. A job is written once and never changes; what moves are ranges: up to
-- 1,024 jobs under one number, with the span [low, high) and a map of the members meant (null: the whole span).

create sequence penstock.range_number as bigint
    minvalue 1 maxvalue 9007199254740991 start 1 increment 1024 cache 1 no cycle;
create sequence penstock.lease_number as bigint cache 1 no cycle;

comment on sequence penstock.range_number is
    'Steps by 1,024 from the shard''s number, so that an id (range number * 1,024 + position) names its shard.';

-- The catalogue.

create table penstock.queue (
    id               int generated always as identity primary key,
    name             text not null constraint queue_name_is_unique unique
                     constraint queue_name_has_1_to_200_characters check (length(name) between 1 and 200),
    max_length       bigint constraint max_length_is_positive check (max_length > 0),
    max_wait_seconds double precision constraint max_wait_is_positive check (max_wait_seconds > 0),
    is_paused        boolean not null default false,
    created_at       timestamptz not null default now(),
    -- How many of its partitions are in use now, and which map of keys to partitions that is.
    partitions       int not null default 1 constraint partitions_are_positive check (partitions > 0),
    epoch            int not null default 1,
    -- Gate: at most so many running, so many starts a second; both for each partition.
    running_limit    int constraint limit_is_positive check (running_limit > 0),
    rate             double precision constraint rate_is_positive check (rate > 0),
    -- Rules about keys, decided by a partition's owner.
    per_key          int constraint per_key_is_positive check (per_key > 0),
    key_rate         double precision constraint per_key_rate_is_positive check (key_rate > 0),
    fair_by          text constraint fair_by_is_known check (fair_by = 'tenant'),
    weights          json,
    holds_on_retry   boolean not null default true,
    halts_on_dead    boolean not null default false,
    is_owned         boolean not null generated always as
                     (per_key is not null or key_rate is not null or fair_by is not null) stored
);

-- Each map of keys to partitions a queue has had. Closed: nobody writes by it any more. Drained: nothing is left of it.
create table penstock.queue_map (
    queue_id   int not null references penstock.queue,
    epoch      int not null,
    partitions int not null,
    opened_at  timestamptz not null default now(),
    is_closed  boolean not null default false,
    is_drained boolean not null default false,
    primary key (queue_id, epoch)
);

create table penstock.partition (
    id       int generated always as identity primary key,
    queue_id int not null references penstock.queue,
    number   int not null constraint partition_number_is_not_negative check (number >= 0),
    name     text not null constraint partition_name_is_unique unique,
    -- The worker that holds it for now, where its queue has rules about keys; the epoch grows with each change.
    owner_id    bigint,
    owner_epoch bigint not null default 0,
    constraint partition_is_unique_in_its_queue unique (queue_id, number)
) with (fillfactor = 50);

create table penstock.task (
    queue_id     int not null references penstock.queue,
    name         text not null,
    max_attempts smallint not null constraint max_attempts_is_positive check (max_attempts > 0),
    primary key (queue_id, name)
);

create table penstock.worker (
    id            bigint generated always as identity primary key,
    name          text not null,
    host          text not null,
    pid           int not null,
    version       text not null,
    concurrency   int not null,
    lease_seconds double precision not null,
    -- The server process it claims and settles with; it is ended with the worker, and what it locked is free.
    session_pid   int,
    started_at    timestamptz not null default now(),
    renewed_at    timestamptz not null default now()
) with (fillfactor = 50);

create table penstock.worker_task (
    worker_id bigint not null references penstock.worker on delete cascade,
    queue_id  int not null references penstock.queue,
    task      text not null,
    primary key (worker_id, queue_id, task)
);

-- Who wants to be woken for a queue: a producer notifies only where there is a row.
create table penstock.sleeper (
    queue_id  int not null references penstock.queue,
    worker_id bigint not null references penstock.worker on delete cascade,
    primary key (queue_id, worker_id)
);

-- What to do: immutable, dropped table partition by table partition. `args` is json, not jsonb: it comes
-- back byte for byte, is smaller, and costs less to write.

create table penstock.job (
    id           bigint not null primary key,
    enqueued_at  timestamptz not null,
    partition_id int not null,
    priority     smallint not null,
    task         text not null,
    key          bytea,
    args         json not null,
    attributes   jsonb
) partition by range (id);

comment on column penstock.job.attributes is 'Rare facts: tenant, owner, tags, idempotency_key, parents.';

-- The few jobs that outlive their table partition.
create table penstock.job_kept (like penstock.job including all);

-- The table partitions of `job`: ranges low (included) to high (not included), each in penstock.job_<low>.
create table penstock.job_part (
    low        bigint primary key,
    high       bigint not null,
    created_at timestamptz not null default now(),
    is_detached boolean not null default false,
    constraint job_part_is_not_empty check (high > low)
);

-- What may run now. `pos` gives the order: the range number for new rows, kept by split and rescue. Spans lie within
-- 0 to 1,024; no CHECK says so here and on `lease`: it would cost each enqueue and claim a tenth of their time.

create table penstock.ready (
    partition_id int not null,
    priority     smallint not null,
    pos          bigint not null,
    range        bigint not null,
    low          smallint not null,
    high         smallint not null,
    members      bit(1024),
    attempt      smallint not null default 1,
    rescues      smallint not null default 0,
    is_parked    boolean not null default false,
    -- Not now(): a caller's transaction may have begun long ago, and max_wait counts from here.
    ready_at     timestamptz not null default clock_timestamp(),
    -- On queues with an owner: the transaction that wrote the row, by which the owner finds what is new, and the map
    -- its jobs were routed by; such a range holds jobs of any task, and `task` is empty.
    changed      xid8,
    epoch        int,
    task         text not null
) with (fillfactor = 80);

create index ready_in_order on penstock.ready (partition_id, priority, pos) where not is_parked;
create index ready_of_range on penstock.ready (range);
create index ready_parked on penstock.ready (partition_id, task) where is_parked;
create index ready_changed on penstock.ready (partition_id, changed) where changed is not null;
create index ready_of_epoch on penstock.ready (partition_id, epoch) where epoch is not null;

-- What is running: a worker's numbered right to run a range. The number only grows: it is the fence.

create table penstock.lease (
    id           bigint primary key default nextval('penstock.lease_number'),
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
    task         text not null
) with (fillfactor = 80);

create index lease_of_range on penstock.lease (range);

comment on column penstock.lease.is_ahead is
    'Claimed beyond the free slots: its jobs may not have started, so a crash alone never dead-letters them.';

-- What waits for a time: delays and retries.

create table penstock.scheduled (
    due_at       timestamptz not null,
    partition_id int not null,
    priority     smallint not null,
    range        bigint not null,
    low          smallint not null,
    high         smallint not null,
    members      bit(1024),
    attempt      smallint not null default 1,
    rescues      smallint not null default 0,
    -- Of a retry that keeps its place and holds its key until it runs; null: it takes a place when it is due.
    pos          bigint,
    epoch        int,
    task         text not null,
    constraint scheduled_span_is_within_its_range check (0 <= low and low < high and high <= 1024)
);

create index scheduled_by_due_time on penstock.scheduled (due_at);
create index scheduled_of_range on penstock.scheduled (range);

-- What waits for other jobs.

create table penstock.blocked (
    job_id            bigint primary key,
    partition_id      int not null,
    priority          smallint not null,
    task              text not null,
    run_at            timestamptz,
    runs_on_failure   boolean not null,
    parents           bigint[] not null
);

create table penstock.dependency (
    parent_id bigint not null,
    child_id  bigint not null,
    primary key (parent_id, child_id)
);

-- What ended. One row for what one settle ended of one lease in one way, the facts of its jobs in arrays;
-- `finished_job` unfolds them. Dropped slice by slice.

create table penstock.finished (
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
    constraint outcome_is_known check (outcome between 0 and 4)
) partition by list (slice);

create index finished_of_range on penstock.finished (range);

comment on column penstock.finished.start_ages is 'Microseconds from start to finished_at, job by job.';
comment on column penstock.finished.run_times is 'Microseconds a handler ran, job by job.';

create table penstock.slice (
    number    int primary key,
    opened_at timestamptz,
    is_detached boolean not null default false
);

-- Dead letters: work, not history.

create table penstock.dead (
    job_id       bigint primary key,
    partition_id int not null,
    task         text not null,
    attempt      smallint not null,
    started_at   timestamptz,
    failed_at    timestamptz not null default now(),
    worker       text,
    error        text
);

create index dead_of_partition on penstock.dead (partition_id, job_id);
create index dead_by_time on penstock.dead (failed_at);

create table penstock.failure (
    job_id  bigint not null,
    attempt smallint not null,
    at      timestamptz not null default now(),
    worker  text,
    error   text not null
);

create index failure_of_job on penstock.failure (job_id, attempt);

-- Keys that wait for a person, since a job of theirs is a dead letter.
create table penstock.halted (
    queue_id int not null references penstock.queue,
    key      bytea not null,
    job_id   bigint not null,
    since    timestamptz not null default now(),
    primary key (queue_id, key)
);

-- What a partition's rate has left: the newest row says when its bucket would be full again. Rows are added, never
-- changed: a row changed all the time is slow behind a long transaction.
create table penstock.spent (
    partition_id int not null,
    id           bigint generated always as identity,
    full_at      timestamptz not null,
    primary key (partition_id, id)
);

-- Partitions whose owner found nothing that could start, as of a snapshot: only what came since may be work.
create table penstock.quiet (
    partition_id int primary key references penstock.partition,
    as_of        pg_snapshot not null
);

-- Loads: bulk writes with a name.

create table penstock.load (
    id           bigint generated always as identity primary key,
    name         text not null constraint load_name_is_unique unique
                 constraint load_name_has_1_to_200_characters check (length(name) between 1 and 200),
    queue_id     int not null references penstock.queue,
    is_stream    boolean not null,
    -- Of a stream: the query whose checkpoint counts its batches.
    origin       text,
    is_paused    boolean not null default false,
    cancelled_at timestamptz,
    created_at   timestamptz not null default now()
);

create index load_paused on penstock.load (id) where is_paused;

-- What was published, once each: a load has batch 0, a stream one for each of its micro-batches.
create table penstock.load_batch (
    load_id      bigint not null references penstock.load,
    batch        bigint not null,
    rows         bigint not null,
    duplicates   bigint not null,
    bad_rows     bigint not null,
    published_at timestamptz not null default now(),
    primary key (load_id, batch)
);

-- The ranges of loads. A stage is what one task of the writer wrote; its ranges belong to no load until they are
-- published, and are forgotten where that never happens.
create table penstock.load_range (
    range        bigint primary key,
    stage        text not null,
    load_id      bigint references penstock.load,
    size         smallint not null constraint load_range_size_is_within_a_range check (size between 1 and 1024),
    partition_id int not null,
    priority     smallint not null,
    run_at       timestamptz,
    epoch        int,
    has_once     boolean not null,
    created_at   timestamptz not null default now(),
    task         text not null
);

create index load_range_of_stage on penstock.load_range (stage) where load_id is null;
create index load_range_of_load on penstock.load_range (load_id, range) where load_id is not null;
create index load_range_staged_at on penstock.load_range (created_at) where load_id is null;

-- Idempotency keys, asks to stop, progress.

create table penstock.dedup (
    queue_id        int not null,
    idempotency_key text not null,
    job_id          bigint not null,
    primary key (queue_id, idempotency_key)
);

create index dedup_of_job on penstock.dedup (job_id);

create table penstock.cancellation (
    job_id       bigint primary key,
    requested_at timestamptz not null default now()
);

create table penstock.progress (
    job_id bigint primary key,
    value  real,
    note   text,
    at     timestamptz not null default now()
);

-- Depth and lifetime totals: one appended row a transaction, folded by upkeep. No counter row on anybody's path.

create table penstock.tally (
    partition_id int not null,
    opened       int not null default 0,
    scheduled    int not null default 0,
    blocked      int not null default 0,
    dead         int not null default 0,
    enqueued     int not null default 0,
    completed    int not null default 0,
    failed       int not null default 0
);

create table penstock.total (
    partition_id int primary key references penstock.partition,
    opened       bigint not null default 0,
    scheduled    bigint not null default 0,
    blocked      bigint not null default 0,
    dead         bigint not null default 0,
    enqueued     bigint not null default 0,
    completed    bigint not null default 0,
    failed       bigint not null default 0
) with (fillfactor = 50);

comment on column penstock.total.opened is 'Jobs ready or leased.';

create view penstock.depth as
select partition_id,
       sum(opened)::bigint as opened, sum(scheduled)::bigint as scheduled, sum(blocked)::bigint as blocked,
       sum(dead)::bigint as dead, sum(enqueued)::bigint as enqueued, sum(completed)::bigint as completed,
       sum(failed)::bigint as failed
  from (select * from penstock.total union all select * from penstock.tally) as counted
 group by partition_id;

create table penstock.cron (
    name       text primary key,
    expression text not null,
    timezone   text not null,
    queue_id   int not null references penstock.queue,
    task       text not null,
    key        bytea,
    args       json not null,
    is_paused  boolean not null default false,
    next_at    timestamptz not null,
    last_at    timestamptz,
    created_at timestamptz not null default now()
);

-- Maps of members. Bit p of a map is the job at position p of the range.

create function penstock.span(low int, high int) returns bit(1024)
language sql immutable strict parallel safe as
$$ select (repeat('0', low) || repeat('1', high - low) || repeat('0', 1024 - high))::bit(1024) $$;

create function penstock.single(pos int) returns bit(1024)
language sql immutable strict parallel safe as
$$ select set_bit(repeat('0', 1024)::bit(1024), pos, 1) $$;

create function penstock.members_count(low smallint, high smallint, members bit(1024)) returns int
language sql immutable parallel safe as
$$ select case when members is null then high - low else bit_count(members)::int end $$;

create function penstock.has_member(low smallint, high smallint, members bit(1024), pos int) returns boolean
language sql immutable parallel safe as
$$ select pos >= low and pos < high and (members is null or get_bit(members, pos) = 1) $$;

create function penstock.first_member(low smallint, members bit(1024)) returns int
language sql immutable parallel safe as
$$ select case when members is null then low::int else position(B'1' in members) - 1 end $$;

create function penstock.positions(low smallint, high smallint, members bit(1024)) returns smallint[]
language sql immutable parallel safe as
$$ select array(select p::smallint from generate_series(low::int, high - 1) as p
                 where members is null or get_bit(members, p) = 1) $$;

-- What ended, a row a job.

create view penstock.finished_job as
select f.range * 1024 + u.position as job_id, f.slice, f.partition_id, f.outcome, f.attempt,
       f.finished_at - make_interval(secs => greatest(0, u.start_age - u.run_time) / 1e6) as finished_at,
       f.finished_at - make_interval(secs => u.start_age / 1e6) as started_at,
       f.worker, u.result, u.error
  from penstock.finished as f,
       unnest(f.positions, f.start_ages, f.run_times, f.results, f.errors)
           as u(position, start_age, run_time, result, error);

create view penstock.job_stored as
select * from penstock.job union all select * from penstock.job_kept;
