-- name: declare_queue
-- See @schema@.declare_queue. Locks: the catalogue, where there is no such queue yet; nothing a producer or worker wants.
select @schema@.declare_queue(%(name)s, %(partitions)s, %(rules)s::jsonb, %(weights)s::json, %(avoid)s::int[])

-- name: declare_task
-- Announces a task and how many attempts its jobs have; the last word wins. Whether its queue is known here: a shard
-- hears of a new queue a moment after the one that leads.
with known as (select q.id from @schema@.queue as q where q.id = %(queue_id)s),
     announced as (
    insert into @schema@.task (queue_id, name, max_attempts) select id, %(name)s, %(max_attempts)s from known
    on conflict (queue_id, name) do update set max_attempts = excluded.max_attempts
     where task.max_attempts <> excluded.max_attempts
)
select exists (select from known)

-- name: read_queues
-- The catalogue, a row a queue: first the partitions of the map of now, then the others. Deleted queues only where they are
-- asked for. Index: partition_is_unique_in_its_queue.
select q.id, q.name, q.rules::text, q.weights::text, q.is_paused, q.is_owned, q.epoch, q.partitions,
       array_agg(p.id order by p.state = 'current' desc, p.number, p.id), array_agg(p.name order by p.state = 'current' desc, p.number, p.id),
       array_agg(p.shard order by p.state = 'current' desc, p.number, p.id), q.homes, q.version,
       (select json_agg(json_build_array(m.epoch, array(
                   select o.shard from unnest(m.partition_ids) with ordinality as i(id, ordinal)
                     join @schema@.partition as o on o.id = i.id order by i.ordinal), m.homes) order by m.epoch)
          from @schema@.queue_map as m where m.queue_id = q.id and not m.is_carried)
  from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
 where (%(name)s::text is null or q.name = %(name)s) and (q.deleted_at is null or %(deleted)s)
 group by q.id order by q.name

-- name: deleted_since
-- When the last queue of this name was deleted, and what it is called since (see @schema@.delete_queue). The catalogue is small.
select deleted_at, name from @schema@.queue
 where deleted_at is not null and starts_with(name, left(%(name)s, 180) || ' (deleted ') order by deleted_at desc limit 1

-- name: queue_of_partition_name
-- The queue a name already belongs to as a partition.
select q.name from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id where p.name = %(name)s

-- name: set_paused
-- Locks: the catalogue, the queue's row.
update @schema@.queue set is_paused = %(is_paused)s, version = @schema@.next_version()
 where name = %(name)s and is_paused <> %(is_paused)s

-- name: set_rules
-- Of two who change a queue's rules at once neither undoes the other's: the caller holds the catalogue. Locks: the
-- queue's row.
update @schema@.queue
   set rules = %(rules)s::jsonb, weights = %(weights)s::json, version = %(version)s,
       limited_at = case when %(rules)s::jsonb ?| '{limit,rate}'
                         then case when running_limit is null and rate is null then %(version)s else limited_at end end
 where name = %(name)s

-- name: next_version
-- Begins a change of the catalogue. Locks: its one row.
select @schema@.next_version()

-- name: fit_buckets
-- See @schema@.fit_buckets. Locks: the partitions' rows by number.
select @schema@.fit_buckets(%(queue_id)s)

-- name: forget_permits
-- See @schema@.forget_permits. Locks: the queue's ledger, by its duty.
select @schema@.forget_permits(%(queue_id)s)

-- name: wake_queue
-- Notify the workers that sleep on a queue. See @schema@.wake.
select @schema@.wake(%(queue_id)s)

-- name: read_depths
-- Jobs open in each partition given, and with them those to come: folded plus unfolded. Bounded: upkeep folds the tally
-- every few seconds.
select partition_id, opened, @schema@.expected_in(d) from @schema@.depth as d where partition_id = any (%(partitions)s)

-- name: waiting_in
-- How many jobs wait in a partition, for `max_length`. See @schema@.waiting_in.
select @schema@.waiting_in(%(partition)s)
