-- name: enqueue_one
-- Writes one job that may run now, in one round trip and one transaction: what most producers do most of the time.
-- Locks: none that another producer wants. Every 64th looks whether tables run out (@schema@.draw_range). Behind a pooler
-- the call's receipt is written with it; elsewhere its token is null. See @schema@.note_written.
with written as (
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (nextval('@schema@.range_number'::regclass) * 1024, now(), %(partition)s, %(priority)s, %(task)s, %(key)s,
            %(args)s::json, %(attributes)s::jsonb)
    returning id >> 10 as range
), counted as (
    insert into @schema@.tally (partition_id, enqueued, opened) values (%(partition)s, 1, 1)
)
insert into @schema@.ready (partition_id, priority, pos, range, low, high, task)
select %(partition)s, %(priority)s, range, range, 0, 1, %(task)s from written
returning case when %(token)s::bigint is null then range * 1024
               else @schema@.note_written(%(token)s::bigint, %(kept_seconds)s, range * 1024) end,
          case when (range >> 10) & 63::bigint = 0 then @schema@.note_shortage(range) end,
          case when exists (select from @schema@.sleeper where queue_id = %(queue)s)
               then pg_notify('@schema@_' || %(queue)s::int::text, '') end

-- name: enqueue_few
-- Writes one range of a few jobs and makes it visible, in one round trip and one transaction.
-- Locks: none that another producer wants. args is a JSON array of the jobs' arguments, taken apart verbatim. Behind a
-- pooler the call's receipt is written with it; elsewhere its token is null. See @schema@.note_written.
with drawn as materialized (
    select @schema@.draw_range() as range, json_array_length(%(args)s::json)::smallint as size, due_at,
           coalesce(due_at > now(), false) as is_later
      from (select coalesce(%(run_at)s::timestamptz, now() + make_interval(secs => %(delay)s))) as given(due_at)
), written as (
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    select d.range * 1024 + a.n - 1, now(), %(partition)s, %(priority)s, %(task)s,
           (%(keys)s::bytea[])[a.n], a.value,
           @schema@.with_run_at(nullif(%(attributes)s::jsonb -> (a.n - 1)::int, 'null'), case when d.is_later then d.due_at end)
      from drawn as d, json_array_elements(%(args)s::json) with ordinality as a(value, n)
), at_once as (
    insert into @schema@.ready (partition_id, priority, pos, range, low, high, task)
    select %(partition)s, %(priority)s, range, range, 0, size, %(task)s from drawn where not is_later
), later as (
    insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, task)
    select due_at, %(partition)s, %(priority)s, range, 0, size, %(task)s from drawn where is_later
), counted as (
    insert into @schema@.tally (partition_id, enqueued, opened, scheduled)
    select %(partition)s, size, case when is_later then 0 else size end, case when is_later then size else 0 end
      from drawn
)
select case when %(token)s::bigint is null then range * 1024
            else @schema@.note_written(%(token)s::bigint, %(kept_seconds)s, range * 1024) end as first_id,
       case when exists (select from @schema@.sleeper where queue_id = %(queue)s)
            then pg_notify('@schema@_' || %(queue)s::int::text, '') end
  from drawn

-- name: enqueue_one_if_mapped
-- The same on a queue with an owner; null where the map is not the queue's any more, and then nothing was written.
-- Locks: the map, shared with all producers.
select case when %(token)s::bigint is null then first_id
            else @schema@.note_written(%(token)s::bigint, %(kept_seconds)s, first_id) end
  from @schema@.enqueue_one_if_mapped(%(queue)s, %(epoch)s, %(partition)s, %(priority)s, %(task)s, %(key)s,
           %(args)s::json, %(attributes)s::jsonb) as written(first_id)

-- name: enqueue_few_if_mapped
-- See enqueue_few and enqueue_one_if_mapped.
select case when %(token)s::bigint is null then first_id
            else @schema@.note_written(%(token)s::bigint, %(kept_seconds)s, first_id) end
  from @schema@.enqueue_few_if_mapped(%(queue)s, %(epoch)s, %(partition)s, %(priority)s,
           coalesce(%(run_at)s::timestamptz, now() + make_interval(secs => %(delay)s)), %(tasks)s::text[],
           %(keys)s::bytea[], %(args)s::json, %(attributes)s::jsonb) as written(first_id)

-- name: draw_ranges
-- Range numbers for a call, and the time that its jobs bear.
select array(select @schema@.draw_range() from generate_series(1, %(count)s)), now()

-- name: draw_ranges_if_mapped
-- The same by maps that must be locked; null where one is not its queue's any more, or not open yet. Locks: the maps, shared.
select case when @schema@.lock_maps(%(queues)s::int[], %(epochs)s::int[])
            then array(select @schema@.draw_range() from generate_series(1, %(count)s)) end, now()

-- name: copy_jobs
-- Many jobs at once; they are not seen before their ranges are opened in the same transaction.
copy @schema@.job (id, partition_id, priority, task, key, args, attributes) from stdin (encoding 'UTF8')

-- name: make_visible
-- Make the ranges of jobs that were copied ready or scheduled, and wake who sleeps. See @schema@.make_visible.
select @schema@.make_visible(%(queues)s::int[], %(partitions)s::int[], %(priorities)s::smallint[], %(tasks)s::text[],
                            %(run_ats)s::timestamptz[], %(ranges)s::bigint[], %(sizes)s::smallint[],
                            %(members)s::bit(1024)[], %(epochs)s::int[])

-- name: block_jobs
-- Let jobs of this transaction wait for their parents. See @schema@.block_jobs.
select @schema@.block_jobs(%(ids)s::bigint[], %(partitions)s::int[], %(priorities)s::smallint[], %(tasks)s::text[],
                           %(run_ats)s::timestamptz[], %(on_parent_failures)s::text[], %(parents)s::json[])

-- name: unknown_parents
-- Which of these jobs are nowhere (any more): a child of theirs would wait for ever. Those of other shards are asked for there.
select p from unnest(%(parents)s::bigint[]) as p where not @schema@.can_be_parent(p) limit 1
