-- name: register_worker
-- A worker is there, under the number that it drew.
insert into @schema@.worker (id, name, instance, host, pid, version, concurrency, lease_seconds)
values (%(worker)s, %(name)s, coalesce(%(instance)s::uuid, gen_random_uuid()), %(host)s, %(pid)s, %(version)s,
        %(concurrency)s, %(lease_seconds)s)

-- name: note_session
-- The server process that a worker claims and settles with.
update @schema@.worker set session_pid = pg_backend_pid() where id = %(worker)s

-- name: register_worker_tasks
-- What a worker can run, for how long, and in which batches.
insert into @schema@.worker_task (worker_id, queue_id, task, timeout_seconds, batch, batch_wait_seconds)
select %(worker)s, q, t, s, b, w
  from unnest(%(queues)s::int[], %(tasks)s::text[], %(timeouts)s::double precision[], %(batches)s::int[],
              %(batch_waits)s::double precision[]) as g(q, t, s, b, w) on conflict do nothing

-- name: renew_worker_if_alive
-- One row a worker, not one a job. No row: the worker was declared dead, and every lease it held is lost. Which server
-- it was: another than before may not know what was written last; and how old a program may be. What ended there lately goes along.
update @schema@.worker set renewed_at = now(), ended_lately = %(ended)s, failed_lately = %(failed)s where id = %(worker)s
returning @schema@.this_server(), (select oldest_program from @schema@.function_set), is_asked_to_stop

-- name: find_worker
-- What a worker is called on all shards, by its number here, or by that of a remote worker; and whether it runs jobs. Index: the
-- primary keys.
select w.instance::text, w.concurrency > 0 from @schema@.worker as w
 where w.id = coalesce((select r.worker_id from @schema@.remote_worker as r where r.id = %(id)s), %(id)s)

-- name: ask_worker_to_stop
-- A worker hears with its next renewal, or its next call, that it is to end. Locks: its row.
update @schema@.worker set is_asked_to_stop = true where instance = %(instance)s::uuid

-- name: remove_worker
-- A worker has gone by itself, and holds nothing.
delete from @schema@.worker where id = %(worker)s

-- name: asked_to_stop
-- Of the jobs this worker runs, those somebody wants stopped.
select c.job_id from @schema@.cancellation as c
 where exists (select from @schema@.lease as l where l.worker_id = %(worker)s and l.range = c.job_id / 1024
                  and @schema@.has_member(l.low, l.high, l.members, (c.job_id %% 1024)::int))

-- name: withheld_queues
-- The queues of which this program takes nothing: they are paused, or have rules that it would have to know; of those that
-- were deleted, the ones that this worker serves.
select q.id, q.name, q.is_paused, q.deleted_at is not null from @schema@.queue as q
 where (q.is_paused or not coalesce(q.rules -> 'must_know', '[]') <@ %(known)s::jsonb)
   and (q.deleted_at is null
        or exists (select from @schema@.worker_task as t where t.worker_id = %(worker)s and t.queue_id = q.id))

-- name: limited_queues
-- The queues whose limit is kept by the claim.
select id from @schema@.queue where (running_limit is not null or total_limit is not null) and not is_owned

-- name: fall_asleep
-- Nothing where the worker was declared dead: it is about to find out. Locks: its own row against removal.
with alive as (select id from @schema@.worker where id = %(worker)s for key share)
insert into @schema@.sleeper (queue_id, worker_id) select q, alive.id from alive, unnest(%(queues)s::int[]) as q
on conflict do nothing

-- name: wake_up
-- A worker sleeps no more. Index: its primary key.
delete from @schema@.sleeper where worker_id = %(worker)s

-- name: next_due
-- When the next scheduled job is due, and the next cron entry, in seconds from now. Index: scheduled_by_due_time,
-- cron_by_next_time.
select (select extract(epoch from min(due_at) - now())::double precision from @schema@.scheduled),
       (select extract(epoch from min(next_at) - now())::double precision from @schema@.cron
         where not is_paused and not is_leaving)

-- name: has_work
-- Whether any job a worker has a handler for is ready in queues that are not paused, or due. Index: ready_in_order
-- (partitions with anything ready, each found behind the one before, and asked for in its order, so that another queue's
-- backlog is never walked through), scheduled_by_due_time. Blocked
-- children whose parents have ended were made ready by upkeep just before. A worker that was declared dead knows
-- nothing here, and must find that out before it says that nothing is left to do.
select not exists (select from @schema@.worker where id = %(worker)s)
  or exists (
    with recursive found(id) as (
        (select partition_id from @schema@.ready where not is_parked order by partition_id, priority, pos limit 1)
        union all
        select (select r.partition_id from @schema@.ready as r where not r.is_parked and r.partition_id > f.id
                 order by r.partition_id, r.priority, r.pos limit 1)
          from found as f where f.id is not null
    )
    select from found as f
     cross join lateral (select id, queue_id from @schema@.partition where id = f.id offset 0) as p
     cross join lateral (select id from @schema@.queue where id = p.queue_id and not is_paused offset 0) as q
     cross join lateral (
           select task from @schema@.worker_task where worker_id = %(worker)s and queue_id = q.id offset 0) as t
     cross join generate_series(0, 9) as level(priority)
     cross join lateral (
           select from @schema@.ready as r
            where r.partition_id = p.id and not r.is_parked and r.priority = level.priority and r.task = t.task
            order by r.pos limit 1) as head)
  or (coalesce((select min(due_at) from @schema@.scheduled) <= now(), false) and exists (
    select from @schema@.scheduled as s
      join @schema@.partition as p on p.id = s.partition_id
      join @schema@.queue as q on q.id = p.queue_id and not q.is_paused
      join @schema@.worker_task as t on t.worker_id = %(worker)s and t.queue_id = p.queue_id and s.task in (t.task, '')
     where s.due_at <= now()))

-- name: report_progress_if_leased
-- Of jobs that the worker still holds. Index: lease_of_range.
insert into @schema@.progress (job_id, value, note)
select g.id, g.v, g.n from unnest(%(ids)s::bigint[], %(values)s::real[], %(notes)s::text[]) as g(id, v, n)
 where exists (select from @schema@.lease as l where l.worker_id = %(worker)s and l.range = g.id / 1024
                  and @schema@.has_member(l.low, l.high, l.members, (g.id %% 1024)::int))
on conflict (job_id) do update set value = excluded.value, note = excluded.note, at = now()

-- name: read_workers
-- Every worker, or one, the tasks that it knows by queue and how many jobs it holds. `lease` is read as a whole. Of what a remote
-- worker ended in the minute before this one so much counts as lies within the last sixty seconds, were it even.
select w.instance::text, coalesce(r.id, w.id), w.name, w.host, w.pid, w.started_at, w.renewed_at, w.concurrency,
       coalesce(l.jobs, 0),
       coalesce(w.ended_lately, round(share.this * r.ended_now + share.other * r.ended_before)::int),
       coalesce(w.failed_lately, round(share.this * r.failed_now + share.other * r.failed_before)::int), w.version, r.id is not null, w.is_asked_to_stop,
       coalesce((select json_object_agg(k.queue, k.tasks order by k.queue)
                   from (select q.name as queue, json_agg(t.task order by t.task) as tasks
                           from @schema@.worker_task as t join @schema@.queue as q on q.id = t.queue_id
                          where t.worker_id = w.id group by q.name) as k), '{}')::text
  from @schema@.worker as w
  left join @schema@.remote_worker as r on r.worker_id = w.id
  left join lateral (
       select case r.counted_in when minute.this then 1 when minute.before then minute.rest else 0 end as this,
              case r.counted_in when minute.this then minute.rest else 0 end as other
         from (select date_trunc('minute', now()) as this, date_trunc('minute', now()) - interval '1 minute' as before,
                      1 - extract(second from now()) / 60 as rest) as minute) as share on true
  left join (select worker_id, sum(@schema@.members_count(low, high, members))::int as jobs
               from @schema@.lease group by worker_id) as l on l.worker_id = w.id
 where %(instance)s::uuid is null or w.instance = %(instance)s::uuid
 order by w.started_at, w.id

-- name: running_jobs
-- What workers, or one, run now: so many of each, those that run longest first. What was claimed ahead may not have started
-- and is left out. `lease` is read as a whole. Index: the primary key of job.
select h.instance, h.id, q.name, j.task, h.attempt, h.claimed_at
  from (select w.instance::text as instance, l.partition_id, l.range * 1024 + m as id, l.attempt, l.claimed_at,
               row_number() over (partition by w.id order by l.claimed_at, l.range, m) as n
          from @schema@.lease as l join @schema@.worker as w on w.id = l.worker_id
         cross join lateral unnest(@schema@.positions(l.low, l.high, l.members)) as m
         where not l.is_ahead and (%(instance)s::uuid is null or w.instance = %(instance)s::uuid)) as h
  join @schema@.partition as p on p.id = h.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 cross join lateral (select task from @schema@.job_stored where id = h.id limit 1) as j
 where h.n <= %(most)s order by h.claimed_at, h.id
