-- name: jobs_going_on
-- Those of these jobs that have not ended: they wait, run, or are on their way to another shard. In one snapshot: one that
-- moves from table to table meanwhile is found. Locks: none. Index: *_of_range and the primary keys.
select j.id from unnest(%(ids)s::bigint[]) as j(id)
 where exists (select from @schema@.lease as l
                where l.range = j.id / 1024 and @schema@.has_member(l.low, l.high, l.members, (j.id %% 1024)::int))
    or exists (select from @schema@.ready as r
                where r.range = j.id / 1024 and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int))
    or exists (select from @schema@.scheduled as d
                where d.range = j.id / 1024 and @schema@.has_member(d.low, d.high, d.members, (j.id %% 1024)::int))
    or exists (select from @schema@.blocked as b where b.job_id = j.id and b.cancelled_at is null)
    or exists (select from @schema@.outbox as o where o.job_id = j.id)

-- name: states_of_jobs
-- The state of each of these jobs that is here and not forgotten, in one snapshot. Locks: none. Index: *_of_range and the primary keys.
select j.id, s.state from unnest(%(ids)s::bigint[]) as j(id)
 cross join lateral (
       select 'running' as state from @schema@.lease as l
        where l.range = j.id / 1024 and @schema@.has_member(l.low, l.high, l.members, (j.id %% 1024)::int)
       union all
       select 'ready' from @schema@.ready as r
        where r.range = j.id / 1024 and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
       union all
       select 'ready' from @schema@.outbox as o where o.job_id = j.id
       union all
       select 'scheduled' from @schema@.scheduled as d
        where d.range = j.id / 1024 and @schema@.has_member(d.low, d.high, d.members, (j.id %% 1024)::int)
       union all
       select case when b.cancelled_at is null then 'blocked' else 'cancelled' end from @schema@.blocked as b where b.job_id = j.id
       union all
       select 'failed' from @schema@.dead as d where d.job_id = j.id
       union all
       select (array['succeeded', 'failed', 'cancelled', 'discarded', 'expired'])[f.outcome + 1] from @schema@.finished as f
        where f.range = j.id / 1024 and (j.id %% 1024)::smallint = any (f.positions)
       limit 1) as s

-- name: dead_letters_after
-- Jobs that became dead letters after an instant, and at that instant after a job, the oldest first. Locks: none. Index:
-- dead_by_time.
select d.job_id, q.name, p.name, d.task, d.attempt, d.failed_at, d.worker, d.error
  from @schema@.dead as d
  join @schema@.partition as p on p.id = d.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 where (d.failed_at, d.job_id) > (%(at)s, %(job_id)s)
 order by d.failed_at, d.job_id limit %(limit)s

-- name: children_here
-- The jobs here that wait for a job, with their queues and tenants, the newest first. Locks: none. Index: the primary keys.
select d.child_id, q.name, j.attributes ->> 'tenant'
  from @schema@.dependency as d
 cross join lateral (select partition_id, attributes from @schema@.job_stored where id = d.child_id limit 1) as j
  join @schema@.partition as p on p.id = j.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 where d.parent_id = %(id)s order by d.child_id desc limit %(limit)s

-- name: enqueued_below
-- When the newest job below an id was enqueued. Locks: none. Index: the primary keys, backwards.
select enqueued_at from @schema@.job_stored where id < %(id)s order by id desc limit 1
