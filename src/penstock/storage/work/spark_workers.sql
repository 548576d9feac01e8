-- name: renew_slot_if_alive
-- A Spark task says that it lives, and hears whether its driver does, and which server heard it. No row: it was declared
-- dead.
update @schema@.worker set renewed_at = now() where id = %(worker)s
returning @schema@.this_server(), (select oldest_program from @schema@.function_set), is_asked_to_stop,
          exists (select from @schema@.worker as d where d.id = %(driver)s)

-- name: run_is_busy
-- Whether jobs of these partitions are held by another worker of a run, or by one that is gone and not rescued yet.
-- Leases are few: the table is read as a whole.
select exists (
    select from @schema@.lease as l left join @schema@.worker as w on w.id = l.worker_id
     where l.partition_id = any (%(partitions)s::int[]) and l.worker_id <> %(worker)s
       and (w.id is null or starts_with(w.name, %(run)s)))

-- name: remove_run
-- Every worker of a run leaves; what they held is rescued like a dead one's.
delete from @schema@.worker where starts_with(name, %(run)s)

-- name: read_tasks
-- The tasks of a queue, with the attempts that their jobs have.
select name, max_attempts from @schema@.task where queue_id = %(queue)s

-- name: tasks_at_the_head
-- The tasks of jobs that wait at the head of each partition of a queue, or that no worker knew so far. A hundred rows of
-- each are looked at: once a task is known its jobs are taken, and others stand at the head. Index: ready_in_order,
-- ready_parked.
select distinct coalesce(j.task, r.task)
  from @schema@.partition as p
 cross join lateral (
       (select task, range * 1024 + low as job_id from @schema@.ready
         where partition_id = p.id and not is_parked order by priority, pos limit 100)
        union all
       (select task, range * 1024 + low from @schema@.ready
         where partition_id = p.id and is_parked order by task limit 100)) as r
  left join lateral (select task from @schema@.job_stored where id = r.job_id and r.task = '' limit 1) as j on true
 where p.queue_id = %(queue)s and coalesce(j.task, r.task) <> ''

-- name: waiting_in_queue
-- How many jobs of a queue are ready.
select coalesce(sum(@schema@.members_count(r.low, r.high, r.members)), 0)::bigint
  from @schema@.partition as p join @schema@.ready as r on r.partition_id = p.id and not r.is_parked
 where p.queue_id = %(queue)s

-- name: name_if_alive
-- Renews a worker that somebody takes up again; what it is called, and which server heard it.
update @schema@.worker set renewed_at = now() where id = %(worker)s returning name, @schema@.this_server()

-- name: charge_nothing
-- What a worker holds is rescued, if it comes to that, as it was claimed: no attempt is charged, and no rescue counted.
update @schema@.lease set is_ahead = true, rescues = rescues - 1 where worker_id = %(worker)s and not is_ahead

-- name: is_gated
-- Whether a queue has a limit or a rate, of each partition or in all, so that nothing of it is claimed ahead.
select (running_limit is not null or rate is not null or total_limit is not null or total_rate is not null) and not is_owned from @schema@.queue where id = %(queue)s
