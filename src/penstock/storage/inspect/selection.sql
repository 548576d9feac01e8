-- name: narrow_jobs
-- Of these jobs, those that bear a task, a key and attributes (null: any). Index: the primary keys.
select distinct id from (
    select id, task, key, attributes from @schema@.job where id = any (%(ids)s::bigint[])
    union all
    select id, task, key, attributes from @schema@.job_kept where id = any (%(ids)s::bigint[])) as j
 where (%(task)s::text is null or task = %(task)s) and (%(key)s::bytea is null or key = %(key)s)
   and (%(attributes)s::jsonb is null or attributes @> %(attributes)s)
   and (%(load)s::text is null or @schema@.load_of(id) = %(load)s)

-- name: look_at_jobs
-- A bounded look at jobs in any state, newest first: how many were looked at, the least id, and the ids that match.
-- Index: the primary keys, backwards.
with look as materialized (
    select id, partition_id, task, key, attributes from @schema@.job_stored
     where id < %(before)s order by id desc limit %(looks)s
)
select (select count(*) from look), (select min(id) from look), array(
    select distinct id from look
     where (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[]))
       and (%(task)s::text is null or task = %(task)s) and (%(key)s::bytea is null or key = %(key)s)
       and (%(attributes)s::jsonb is null or attributes @> %(attributes)s)
     order by id desc)

-- name: look_at_load
-- The ranges of a load, newest first, from `top` down: where it was cut (null: that was all), and the ids that match.
-- Index: load_range_of_load, backwards; the primary keys.
with look as materialized (
    select r.range, r.size from @schema@.load_range as r
     where r.load_id = (select l.id from @schema@.load as l where l.name = %(load)s) and r.range <= %(top)s
     order by r.range desc limit %(looks)s
)
select (select case when count(*) = %(looks)s then min(range) end from look), array(
    select distinct j.id from look as r cross join lateral (
           select id, partition_id, task, key, attributes from @schema@.job_stored
            where id >= r.range * 1024 and id < r.range * 1024 + r.size) as j
     where (%(partitions)s::int[] is null or j.partition_id = any (%(partitions)s::int[]))
       and (%(task)s::text is null or j.task = %(task)s) and (%(key)s::bytea is null or j.key = %(key)s)
       and (%(attributes)s::jsonb is null or j.attributes @> %(attributes)s)
     order by j.id desc)

-- The looks at one state each take ranges, newest first, about `looks` of them and none above `top`; they give the
-- range at which they were cut (null: that was all), and those that match with the number of their jobs.

-- name: look_at_ready
-- Index: ready_of_range, backwards.
with look as materialized (
    select range, @schema@.members_count(low, high, members) as n from @schema@.ready
     where range <= %(top)s order by range desc limit %(looks)s
)
select case when count(*) = %(looks)s then min(range) end, array_agg(range order by range desc), array_agg(n order by range desc) from look

-- name: look_at_ready_of_partitions
-- Rows that are where they were enqueued come through ready_in_order, the others through ready_out_of_order: neither
-- walks over what other queues hold. All rows above the highest `pos` at which one of the walks was cut are seen.
with walk as materialized (
    select r.*, r.pos as walk_pos, p.id as partition, level.priority as walk, r.pos = r.range and not r.is_parked as is_met
      from unnest(%(partitions)s::int[]) as p(id) cross join generate_series(0, 9) as level(priority)
     cross join lateral (
           select pos, range, low, high, members, is_parked from @schema@.ready
            where partition_id = p.id and priority = level.priority and not is_parked and pos <= %(top)s
            order by pos desc limit %(looks)s) as r
    union all
    select r.*, r.range, p.id, -1, true
      from unnest(%(partitions)s::int[]) as p(id)
     cross join lateral (
           select pos, range, low, high, members, is_parked from @schema@.ready
            where partition_id = p.id and (pos <> range or is_parked) and range <= %(top)s
            order by range desc limit %(looks)s) as r
), newest as (
    select range, @schema@.members_count(low, high, members) as n from walk where is_met order by range desc limit %(looks)s
), cut as (
    select min(walk_pos) as walk_pos from walk group by partition, walk having count(*) = %(looks)s
    union all
    select min(range) from newest having count(*) = %(looks)s
)
select (select max(walk_pos) from cut), array_agg(range order by range desc), array_agg(n order by range desc) from newest

-- name: look_at_running
-- Index: lease_of_range, backwards; there are only as many leases as jobs run.
with look as materialized (
    select range, partition_id, @schema@.members_count(low, high, members) as n from @schema@.lease
     where range <= %(top)s order by range desc limit %(looks)s
)
select case when count(*) = %(looks)s then min(range) end,
       array_agg(range order by range desc) filter (where m), array_agg(n order by range desc) filter (where m)
  from (select range, n, %(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[]) as m from look) as seen

-- name: look_at_scheduled
-- Index: scheduled_of_range, backwards.
with look as materialized (
    select range, @schema@.members_count(low, high, members) as n from @schema@.scheduled
     where range <= %(top)s order by range desc limit %(looks)s
)
select case when count(*) = %(looks)s then min(range) end, array_agg(range order by range desc), array_agg(n order by range desc) from look

-- name: look_at_scheduled_of_partitions
-- Index: scheduled_of_partition, backwards. Ordered by both of its columns, here and below: by the second alone the planner
-- would walk over what others hold, where nearly all is of one partition.
with look as materialized (
    select s.range, @schema@.members_count(s.low, s.high, s.members) as n
      from unnest(%(partitions)s::int[]) as p(id)
     cross join lateral (
           select range, low, high, members from @schema@.scheduled
            where partition_id >= p.id and (partition_id, range) <= (p.id, %(top)s::bigint)
            order by partition_id desc, range desc limit %(looks)s) as s
     order by s.range desc limit %(looks)s
)
select case when count(*) = %(looks)s then min(range) end, array_agg(range order by range desc), array_agg(n order by range desc) from look

-- name: look_at_finished
-- Index: finished_of_range of each slice, backwards. History has no index by queue: a look may find few.
with look as materialized (
    select range, cardinality(positions) as n, partition_id, outcome from @schema@.finished
     where range <= %(top)s order by range desc limit %(looks)s
)
select case when count(*) = %(looks)s then min(range) end,
       array_agg(range order by range desc) filter (where m), array_agg(n order by range desc) filter (where m)
  from (select range, n, outcome = %(outcome)s and (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[])) as m
          from look) as seen

-- The looks at what has a row for each job give the next ids, newest first, and whether they are meant.

-- name: look_at_blocked
-- Children that wait, or are cancelled for now. Index: the primary key.
select job_id, (cancelled_at is not null) = %(is_cancelled)s from @schema@.blocked where job_id < %(before)s order by job_id desc limit %(looks)s

-- name: look_at_blocked_of_partitions
-- Index: blocked_of_partition, backwards.
select b.job_id, (b.cancelled_at is not null) = %(is_cancelled)s from unnest(%(partitions)s::int[]) as p(id)
 cross join lateral (
       select job_id, cancelled_at from @schema@.blocked
        where partition_id >= p.id and (partition_id, job_id) < (p.id, %(before)s::bigint)
        order by partition_id desc, job_id desc limit %(looks)s) as b
 order by b.job_id desc limit %(looks)s

-- name: look_at_dead
-- Dead letters. Index: the primary key.
select job_id, true from @schema@.dead where job_id < %(before)s order by job_id desc limit %(looks)s

-- name: look_at_dead_of_partitions
-- Index: dead_of_partition, backwards.
select d.job_id, true from unnest(%(partitions)s::int[]) as p(id)
 cross join lateral (
       select job_id from @schema@.dead
        where partition_id >= p.id and (partition_id, job_id) < (p.id, %(before)s::bigint)
        order by partition_id desc, job_id desc limit %(looks)s) as d
 order by d.job_id desc limit %(looks)s

-- name: look_at_dead_of_cause
-- Those of a cause, which is one queue's. Index: dead_of_cause, backwards.
select job_id, %(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[]) from @schema@.dead
 where cause = %(cause)s and job_id < %(before)s::bigint order by job_id desc limit %(looks)s

-- name: look_at_outbox
-- Jobs on their way to other shards. Index: outbox_of_job, backwards.
select job_id, true from @schema@.outbox where job_id < %(before)s order by job_id desc limit %(looks)s

-- name: look_at_outbox_of_partitions
-- Hardly anything is on its way at a time: the index goes by job only.
select job_id, true from @schema@.outbox where job_id < %(before)s and partition_id = any (%(partitions)s::int[])
 order by job_id desc limit %(looks)s

-- The jobs of some ranges in one state. Range by range: where a table was never analyzed, the planner takes a list of
-- ranges for most of it, and would scan all.

-- name: ready_members
-- Index: ready_of_range.
select g.range * 1024 + m
  from unnest(%(ranges)s::bigint[]) as g(range)
 cross join lateral (
       select low, high, members from @schema@.ready
        where range = g.range and (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[])) offset 0) as r
 cross join lateral unnest(case when r.high = r.low + 1 then array[r.low] else @schema@.positions(r.low, r.high, r.members) end) as m

-- name: running_members
-- Index: lease_of_range.
select g.range * 1024 + m
  from unnest(%(ranges)s::bigint[]) as g(range)
 cross join lateral (
       select low, high, members from @schema@.lease
        where range = g.range and (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[])) offset 0) as r
 cross join lateral unnest(case when r.high = r.low + 1 then array[r.low] else @schema@.positions(r.low, r.high, r.members) end) as m

-- name: scheduled_members
-- Index: scheduled_of_range.
select g.range * 1024 + m
  from unnest(%(ranges)s::bigint[]) as g(range)
 cross join lateral (
       select low, high, members from @schema@.scheduled
        where range = g.range and (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[])) offset 0) as r
 cross join lateral unnest(case when r.high = r.low + 1 then array[r.low] else @schema@.positions(r.low, r.high, r.members) end) as m

-- name: finished_members
-- Index: finished_of_range.
select g.range * 1024 + m
  from unnest(%(ranges)s::bigint[]) as g(range)
 cross join lateral (
       select positions from @schema@.finished
        where range = g.range and outcome = %(outcome)s
          and (%(partitions)s::int[] is null or partition_id = any (%(partitions)s::int[])) offset 0) as f
 cross join lateral unnest(f.positions) as m
