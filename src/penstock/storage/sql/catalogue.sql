-- name: declare_queue
-- Creates a queue unless it exists. Locks: none that a producer or worker wants.
insert into penstock.queue (name, max_length, max_wait_seconds, partitions, running_limit, rate, per_key, key_rate,
                            fair_by, weights, holds_on_retry, halts_on_dead)
values (%(name)s, %(max_length)s, %(max_wait)s, %(partitions)s, %(limit)s, %(rate)s, %(per_key)s, %(per_key_rate)s,
        %(fair_by)s, %(weights)s::json, %(holds_on_retry)s, %(halts_on_dead)s)
on conflict (name) do nothing
returning id

-- name: declare_partitions
-- Gives a new queue its first map of keys and its partitions: partition 0 bears the queue's own name.
with first_map as (
    insert into penstock.queue_map (queue_id, epoch, partitions) values (%(queue_id)s, 1, %(partitions)s)
    on conflict do nothing
)
insert into penstock.partition (queue_id, number, name)
select %(queue_id)s, n, case n when 0 then %(name)s else %(name)s || '__p' || n end
  from generate_series(0, %(partitions)s::int - 1) as n
on conflict (queue_id, number) do nothing

-- name: declare_task
-- Announces a task and how many attempts its jobs have; the last word wins.
insert into penstock.task (queue_id, name, max_attempts) values (%(queue_id)s, %(name)s, %(max_attempts)s)
on conflict (queue_id, name) do update set max_attempts = excluded.max_attempts
 where task.max_attempts <> excluded.max_attempts

-- name: read_queues
-- The catalogue, a row a queue. Index: partition_is_unique_in_its_queue.
select q.id, q.name, q.max_length, q.max_wait_seconds, q.is_paused, q.per_key, q.running_limit, q.rate, q.key_rate,
       q.fair_by, q.weights, q.holds_on_retry, q.halts_on_dead, q.is_owned, q.epoch, q.partitions,
       array_agg(p.id order by p.number), array_agg(p.name order by p.number)
  from penstock.queue as q join penstock.partition as p on p.queue_id = q.id
 where %(name)s::text is null or q.name = %(name)s
 group by q.id order by q.name

-- name: queue_of_partition_name
-- The queue a name already belongs to as a partition.
select q.name from penstock.partition as p join penstock.queue as q on q.id = p.queue_id where p.name = %(name)s

-- name: set_paused
update penstock.queue set is_paused = %(is_paused)s where name = %(name)s returning id

-- name: lock_queue
-- So that of two who change a queue's limits at once neither undoes the other's. Locks: the queue's row.
select id from penstock.queue where name = %(name)s for no key update

-- name: set_limits
-- Locks: the queue's row, which the caller has.
update penstock.queue
   set max_length = %(max_length)s, max_wait_seconds = %(max_wait)s, running_limit = %(limit)s, rate = %(rate)s,
       key_rate = %(per_key_rate)s, weights = %(weights)s::json
 where name = %(name)s

-- name: lock_gates
-- So that nobody claims by a queue's old rate while its buckets are made to fit the new one. Locks: the partitions' rows
-- by number.
select id from penstock.partition where queue_id = %(queue_id)s order by id for no key update

-- name: fit_buckets
-- A bucket emptied by a slow rate would be full only after that rate's time: it is empty by the new rate instead.
insert into penstock.spent (partition_id, full_at)
select p.id, empty.full_at
  from penstock.partition as p join penstock.queue as q on q.id = p.queue_id
 cross join lateral (select s.full_at from penstock.spent as s where s.partition_id = p.id order by s.id desc limit 1) as last
 cross join lateral (select clock_timestamp() + greatest(1, floor(q.rate)) / q.rate * interval '1 second' as full_at) as empty
 where q.id = %(queue_id)s and last.full_at > empty.full_at

-- name: wake_queue
select penstock.wake(%(queue_id)s)

-- name: read_depths
-- Jobs open in each partition given: folded plus unfolded. Bounded: upkeep folds the tally every few seconds.
select partition_id, opened from penstock.depth where partition_id = any (%(partitions)s)

-- name: waiting_in
select penstock.waiting_in(%(partition)s)
