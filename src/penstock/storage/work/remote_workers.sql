-- name: enroll_remote_worker
-- A remote worker is there, by its row of `worker`; none is returned where it lives here under another already. Locks: its row.
insert into @schema@.remote_worker as r (id, worker_id, registration, shortest_timeout)
values (%(remote)s, %(worker)s, %(registration)s::json, %(shortest_timeout)s)
on conflict (id) do update
   set worker_id = excluded.worker_id, registration = excluded.registration, shortest_timeout = excluded.shortest_timeout,
       number = 0, request = 0, is_done = true, ends = 0, lost = '[]', claimed = '[]', taken_away = '[]', leases = '{}',
       without = '{}', counted_in = default, ended_now = 0, ended_before = 0, failed_now = 0, failed_before = 0
 where not exists (select from @schema@.worker as w where w.id = r.worker_id)
returning r.worker_id

-- name: greet_remote_worker
-- How a remote worker stands here, at the beginning of a call: its last poll, what it holds, which of that somebody wants
-- stopped, what was taken away from it. It is renewed, where that was not just done. No row: it is not here, or was declared dead.
-- Index: primary keys, lease_of_range.
with mine as (
    select r.id, r.worker_id, w.name, w.lease_seconds, r.registration, w.is_asked_to_stop, r.number, r.request, r.is_done, r.without, r.leases
      from @schema@.remote_worker as r join @schema@.worker as w on w.id = r.worker_id where r.id = %(remote)s
), renewed as (
    update @schema@.worker as w set renewed_at = now() from mine as m
     where w.id = m.worker_id and (%(is_renewal)s or w.renewed_at < now() - make_interval(secs => least(1, m.lease_seconds / 8)))
)
select m.worker_id, m.name, m.lease_seconds, m.registration::text, m.is_asked_to_stop, m.number, m.request, m.is_done, m.without::text,
       (select coalesce(json_agg(json_build_array(
                   l.id, l.token, l.partition_id, p.queue_id, l.range, l.low, l.high, l.members::text, l.attempt, l.rescues, l.task,
                   extract(epoch from now() - l.claimed_at))), '[]')::text
          from unnest(m.leases) as k(id)
         cross join lateral (
               select id, token, partition_id, range, low, high, members, attempt, rescues, task, claimed_at from @schema@.lease
                where id = k.id and worker_id = m.worker_id limit 1) as l
          join @schema@.partition as p on p.id = l.partition_id),
       array(select c.job_id from @schema@.cancellation as c
              where exists (select from @schema@.lease as l where l.worker_id = m.worker_id and l.range = c.job_id / 1024
                               and @schema@.has_member(l.low, l.high, l.members, (c.job_id %% 1024)::int))),
       array(select t.job_id from @schema@.taken_away as t where t.remote_id = m.id)
  from mine as m

-- name: note_delivered
-- A remote worker has called after it was given jobs: it has them. Index: primary keys.
update @schema@.lease as l set is_ahead = false
  from @schema@.remote_worker as r
 where r.id = %(remote)s and l.id = any (r.leases) and l.worker_id = r.worker_id and l.is_ahead

-- name: open_poll
-- See @schema@.open_poll. Locks: the worker's row, its leases by number.
select @schema@.open_poll(%(remote)s, %(seen_number)s, %(seen_request)s, %(number)s, %(request)s, %(leases)s::bigint[],
                          %(tokens)s::bigint[], %(ranges)s::bigint[], %(members)s::bit(1024)[], %(lost)s,
                          %(ended)s, %(failed)s, %(without)s::json, %(is_untold)s)

-- name: claim_for_remote
-- See @schema@.claim_for_remote. Locks: the worker's row, then as a claim.
select l.id, l.partition_id, l.priority, l.pos, l.range, l.low, l.high, l.members::text, l.attempt, l.rescues, l.is_ahead,
       l.task, extract(epoch from now() - l.ready_at)::double precision, l.batch
  from @schema@.claim_for_remote(
       %(remote)s, %(number)s, %(request)s, %(is_last)s, %(token)s, %(firsts)s::int[], %(lasts)s::int[], %(slots)s,
       %(has_suspect)s, %(freed)s::int[], %(started)s::int[], %(starts)s::bigint[]) as l

-- name: lease_chosen_for_remote
-- See @schema@.lease_chosen_for_remote. Locks: the worker's row, rows of partitions, then ready rows by range.
select id, partition_id, priority, pos, range, low, high, members::text, attempt, rescues, is_ahead, task,
       extract(epoch from now() - ready_at)::double precision, batch
  from @schema@.lease_chosen_for_remote(
       %(remote)s, %(number)s, %(request)s, %(is_last)s, %(owner)s, %(token)s, %(server)s, %(partitions)s::int[],
       %(owner_epochs)s::bigint[], %(counts)s::int[], %(ranges)s::bigint[], %(members)s::bit(1024)[], %(aheads)s::boolean[],
       %(batches)s::bigint[])

-- name: end_poll
-- See @schema@.end_poll. Locks: the worker's row.
select @schema@.end_poll(%(remote)s, %(number)s, %(request)s, %(without)s::json)

-- name: take_over_poll
-- See @schema@.take_over_poll. Locks: the worker's row.
select @schema@.take_over_poll(%(remote)s, %(number)s, %(request)s, %(instead)s::bigint[])

-- name: read_poll
-- What came of a remote worker's last poll here.
select is_done, ends, lost::text, taken_away::text, claimed::text from @schema@.remote_worker where id = %(remote)s

-- name: hand_back_poll
-- See @schema@.hand_back_poll. Locks: the worker's row, its leases by number.
select @schema@.hand_back_poll(%(remote)s, %(number)s, %(request)s)

-- name: leave_remote
-- See @schema@.leave_remote. Locks: the worker's row, its leases by number.
select @schema@.leave_remote(%(remote)s)

-- name: wake_queues
-- Wake who sleeps on these queues.
select @schema@.wake(q) from unnest(%(queues)s::int[]) as q

-- name: renew_open
-- The workers whose polls are open are renewed together; those that live. Locks: their rows by number.
with alive as (
    select id from @schema@.worker where id = any (%(workers)s::bigint[]) order by id for no key update
)
update @schema@.worker as w set renewed_at = now() from alive as a where w.id = a.id returning w.id

-- name: news_of_open
-- Of workers whose polls are open: who is to stop, and from whom something was taken away that it has not heard of.
select r.worker_id, w.is_asked_to_stop,
       exists (select from @schema@.taken_away as t where t.remote_id = r.id and t.told_in is null)
  from @schema@.remote_worker as r join @schema@.worker as w on w.id = r.worker_id
 where r.worker_id = any (%(workers)s::bigint[])
   and (w.is_asked_to_stop or exists (select from @schema@.taken_away as t where t.remote_id = r.id and t.told_in is null))

-- name: asks_of_open
-- Which jobs of theirs somebody wants stopped. Index: lease_of_range.
select l.worker_id, c.job_id
  from @schema@.cancellation as c join @schema@.lease as l
    on l.range = c.job_id / 1024 and @schema@.has_member(l.low, l.high, l.members, (c.job_id %% 1024)::int)
 where l.worker_id = any (%(workers)s::bigint[])

-- name: overdue_remotely
-- Leases of remote workers that are as old as the shortest timeout among their tasks, and so long on top. Index: primary keys.
select r.id, r.worker_id, w.name, r.registration::text, l.id, l.token, l.partition_id, p.queue_id, l.range, l.low, l.high,
       l.members::text, l.attempt, l.task, extract(epoch from now() - l.claimed_at)::double precision
  from @schema@.remote_worker as r join @schema@.worker as w on w.id = r.worker_id
 cross join lateral unnest(r.leases) as k(id)
 cross join lateral (
       select id, token, partition_id, range, low, high, members, attempt, task, claimed_at from @schema@.lease
        where id = k.id and worker_id = r.worker_id
          and claimed_at < now() - make_interval(secs => r.shortest_timeout + %(grace)s) limit 1) as l
  join @schema@.partition as p on p.id = l.partition_id
 where r.shortest_timeout is not null
 limit 1000

-- name: take_away
-- See @schema@.take_away. Locks: the leases by number.
select @schema@.take_away(%(remote)s, %(worker)s, %(name)s, %(ends)s::json)

-- name: queues_with_ready
-- Those of these queues of which anything is ready. Index: ready_in_order.
select q.id from unnest(%(queues)s::int[]) as q(id)
 where exists (
       select from @schema@.partition as p
        cross join lateral (
              select from @schema@.ready as r where r.partition_id = p.id and not r.is_parked
               order by r.priority, r.pos limit 1) as head
        where p.queue_id = q.id)

-- name: sleep_on
-- A server asks to be woken by producers of these queues, and of no others. Locks: its row against removal.
with gone as (
    delete from @schema@.sleeper where worker_id = %(worker)s and queue_id <> all (%(queues)s::int[])
), alive as (
    select id from @schema@.worker where id = %(worker)s for key share
)
insert into @schema@.sleeper (queue_id, worker_id) select q, alive.id from alive, unnest(%(queues)s::int[]) as q
on conflict do nothing

-- name: crew_tasks
-- Of queues with an owner: the tasks that those know who choose from them, by queue, with one of these each. Those that fell silent do not count.
select t.queue_id, t.task, min(w.name)
  from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
 where t.queue_id = any (%(queues)s::int[]) and w.renewed_at > now() - make_interval(secs => w.lease_seconds)
   and not exists (select from @schema@.remote_worker as r where r.worker_id = t.worker_id)
 group by t.queue_id, t.task

-- name: remote_workers_left_out
-- Of a queue with an owner: live remote workers that are given none of its jobs, as they lack a task which somebody knows who
-- chooses from it, with that task and who it is.
select distinct on (mine.id) mine.name, t.task, o.name
  from @schema@.remote_worker as r join @schema@.worker as mine on mine.id = r.worker_id
  join @schema@.worker_task as t on t.queue_id = %(queue)s
  join @schema@.worker as o on o.id = t.worker_id and o.renewed_at > now() - make_interval(secs => o.lease_seconds)
 where mine.renewed_at > now() - make_interval(secs => mine.lease_seconds)
   and exists (select from @schema@.worker_task as k where k.worker_id = mine.id and k.queue_id = %(queue)s)
   and not exists (select from @schema@.worker_task as k
                    where k.worker_id = mine.id and k.queue_id = %(queue)s and k.task = t.task)
   and not exists (select from @schema@.remote_worker as x where x.worker_id = o.id)
 order by mine.id, t.task, o.id limit 10

-- name: forget_remote_workers
-- Those that were declared dead. A scan: they are few. Locks: their rows, skipping those that are locked.
with gone as (
    delete from @schema@.remote_worker where id in (
        select r.id from @schema@.remote_worker as r
         where not exists (select from @schema@.worker as w where w.id = r.worker_id) for update skip locked)
    returning id
), told as (
    delete from @schema@.taken_away as t
     where not exists (select from @schema@.remote_worker as r where r.id = t.remote_id) returning 1
)
select (select count(*) from gone) + (select count(*) from told)
