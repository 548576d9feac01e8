-- Jobs on their way to other shards; see functions/shards.

-- What became ready when its key lived on another shard already, and is on its way there; see functions/shards/64_carry.sql.
create table @schema@.outbox (
    id           bigint generated always as identity primary key,
    shard        smallint not null,
    job_id       bigint not null,
    partition_id int not null,
    attempt      smallint not null,
    -- What leaves a shard that is being drained arrives as it was: what that is, and of a job that its key waits for the
    -- map it was routed by. Null: it becomes ready, behind all others.
    facts        json,
    epoch        int
);

create index outbox_of_map on @schema@.outbox (partition_id, epoch) where epoch is not null;
create index outbox_by_shard on @schema@.outbox (shard, id);
create index outbox_of_job on @schema@.outbox (job_id);

-- What came from other shards, once each.
create table @schema@.arrival (
    shard     smallint not null,
    outbox_id bigint not null,
    at        timestamptz not null default clock_timestamp(),
    primary key (shard, outbox_id)
);

create index arrival_by_time on @schema@.arrival (at);

-- Where jobs went that were here.
create table @schema@.forward (
    job_id bigint primary key,
    shard  smallint not null,
    at     timestamptz not null default now()
);

create index forward_by_time on @schema@.forward (at);

-- The trigger of a shard that is drained (@schema@.end_writes).
create function @schema@.refuse_writes() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'PS007', message = format(
        'shard %s is drained: learn where the partitions of its queues live by now', @schema@.here());
end $$;
