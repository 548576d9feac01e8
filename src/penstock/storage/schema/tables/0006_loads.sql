-- Loads: bulk writes with a name; see functions/80_stage.sql.

create table @schema@.load (
    id           bigint generated always as identity primary key,
    name         text not null constraint load_name_is_unique unique
                 constraint load_name_has_1_to_200_characters check (length(name) between 1 and 200),
    queue_id     int not null references @schema@.queue,
    is_stream    boolean not null,
    -- Of a stream: the query whose checkpoint counts its batches. Else the run that published it, where that has a name.
    origin       text,
    is_paused    boolean not null default false,
    cancelled_at timestamptz,
    created_at   timestamptz not null default now(),
    -- The W3C trace context in which it was loaded, as a job has it among its attributes; null where that was not sampled.
    trace        jsonb
);

create index load_paused on @schema@.load (id) where is_paused;

-- What was published, once each: a load has batch 0, a stream one for each of its micro-batches.
create table @schema@.load_batch (
    load_id      bigint not null references @schema@.load,
    batch        bigint not null,
    rows         bigint not null,
    duplicates   bigint not null,
    bad_rows     bigint not null,
    published_at timestamptz not null default now(),
    -- Where it was decided: the commit that did it.
    commit_name  text constraint load_commit_decides_once unique,
    primary key (load_id, batch)
);

-- The ranges of loads. A stage is what one task of the writer wrote; its ranges belong to no load until they are
-- published, and are forgotten where that never happens.
create table @schema@.load_range (
    range                bigint primary key,
    stage                text not null,
    load_id              bigint references @schema@.load,
    size                 smallint not null constraint load_range_size_is_within_a_range check (size between 1 and 1024),
    partition_id         int not null,
    priority             smallint not null,
    run_at               timestamptz,
    epoch                int,
    has_idempotency_keys boolean not null,
    created_at           timestamptz not null default now(),
    -- While the stage is prepared for a commit that another shard decides about: which, and the stage's number in the load.
    commit_name          text,
    stage_number         int,
    task                 text not null
);

create index load_range_of_stage on @schema@.load_range (stage) where load_id is null;
create index load_range_prepared on @schema@.load_range (commit_name) where commit_name is not null;
create index load_range_of_load on @schema@.load_range (load_id, range) where load_id is not null;
create index load_range_staged_at on @schema@.load_range (created_at) where load_id is null;

-- Over several shards a load is decided on one of them, which is the shard that leads. Each try is a commit with a random
-- name. The stages of the others are prepared first (prepare_stages); the transaction that decides publishes what lies on
-- its own shard and says what follows elsewhere (load_share); then each shard publishes its share, once, whoever asks for
-- it (publish_share). Prepared stages are kept, and the map they go by stays in use, until the shard that decides says
-- that they were not decided, and cannot be any more (abort_commit).

-- On the shard that decides: what follows on other shards, until it is published there, and what it came to.
create table @schema@.load_share (
    load_id      bigint not null,
    batch        bigint not null,
    shard        smallint not null,
    commit_name  text not null,
    rows         bigint not null,
    duplicates   bigint,
    published_at timestamptz,
    primary key (load_id, batch, shard),
    foreign key (load_id, batch) references @schema@.load_batch on delete cascade
);

create index load_share_to_publish on @schema@.load_share (load_id, batch, shard) where published_at is null;

-- On the shard that decides: commits that can decide nothing any more.
create table @schema@.load_abort (
    commit_name text primary key,
    at          timestamptz not null default now()
);

-- Elsewhere: the stages that are prepared for a commit, and the map their jobs go by.
create table @schema@.prepared_stages (
    commit_name text primary key,
    decider     smallint not null,
    queue_id    int not null references @schema@.queue,
    epoch       int not null,
    ranges      int not null,
    rows        bigint not null,
    created_at  timestamptz not null default now()
);

create index prepared_stages_of_map on @schema@.prepared_stages (queue_id, epoch);

-- Part of a range on its way into the order: the stage's number in the load, and the jobs that are meant (null: all).
create type @schema@.range_to_publish as (
    range bigint, stage_number bigint, partition_id int, priority smallint, run_at timestamptz, size smallint, epoch int,
    has_idempotency_keys boolean, task text, members bit(1024));
