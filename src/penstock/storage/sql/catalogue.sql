-- name: declare_queue
-- Creates a queue unless it exists. Locks: none that a producer or worker wants.
insert into penstock.queue (name, max_length, max_wait_seconds)
values (%(name)s, %(max_length)s, %(max_wait)s)
on conflict (name) do nothing
returning id

-- name: declare_partitions
-- Gives a new queue its partitions: partition 0 bears the queue's own name.
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
select q.id, q.name, q.max_length, q.max_wait_seconds, q.is_paused,
       array_agg(p.id order by p.number), array_agg(p.name order by p.number)
  from penstock.queue as q join penstock.partition as p on p.queue_id = q.id
 where %(name)s::text is null or q.name = %(name)s
 group by q.id order by q.name

-- name: queue_of_partition_name
-- The queue a name already belongs to as a partition.
select q.name from penstock.partition as p join penstock.queue as q on q.id = p.queue_id where p.name = %(name)s

-- name: set_paused
update penstock.queue set is_paused = %(is_paused)s where name = %(name)s returning id

-- name: set_limits
update penstock.queue set max_length = %(max_length)s, max_wait_seconds = %(max_wait)s where name = %(name)s returning id

-- name: read_depths
-- Jobs open in each partition given: folded plus unfolded. Bounded: upkeep folds the tally every few seconds.
select partition_id, opened from penstock.depth where partition_id = any (%(partitions)s)

-- name: waiting_in
select penstock.waiting_in(%(partition)s)
