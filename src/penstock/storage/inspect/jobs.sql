-- name: jobs_in_scope
-- Those of these jobs that are here, of one of these queues (null: any) and of a tenant (null: any). Locks: none. Index:
-- the primary keys.
select distinct j.id
  from @schema@.job_stored as j
  join @schema@.partition as p on p.id = j.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 where j.id = any (%(ids)s::bigint[]) and (%(queues)s::text[] is null or q.name = any (%(queues)s::text[]))
   and (%(tenant)s::text is null or j.attributes ->> 'tenant' = %(tenant)s)

-- name: read_jobs_with_state
-- Jobs by id, each with where it stands. One statement, so one snapshot: a job that moves from table to table while
-- this reads is found in exactly one of them. Sent with the ids in it, so that only the table partitions that hold
-- them are planned. Locks: none. Index: the primary keys, *_of_range, failure_of_job
-- and edit_of_job.
with stored as (
    select distinct on (j.id) j.* from (
        select id, enqueued_at, partition_id, priority, task, key, args, attributes from @schema@.job where id = any (%(ids)s::bigint[])
        union all
        select id, enqueued_at, partition_id, priority, task, key, args, attributes from @schema@.job_kept where id = any (%(ids)s::bigint[])) as j
)
select j.id, q.name, p.name, j.task, j.args, j.key, j.attributes, j.priority, j.enqueued_at,
       s.state, s.outcome, s.attempt, s.run_at, s.started_at, s.finished_at, s.worker, s.result, s.error,
       f.attempts, f.errors, f.ats, f.workers, g.value, g.note, g.at, @schema@.load_of(j.id),
       c.ats, c.authors, c.args,
       (select r.run_at from @schema@.load_range as r where r.range = j.id / 1024), s.cause
  from stored as j
 cross join lateral (
       select 'running' as state, null::smallint as outcome, l.attempt, null::timestamptz as run_at,
              l.claimed_at as started_at, null::timestamptz as finished_at,
              coalesce((select w.name from @schema@.worker as w where w.id = l.worker_id), 'worker ' || l.worker_id) as worker,
              null::json as result, null::text as error, l.partition_id, null::bigint as cause
         from @schema@.lease as l
        where l.range = j.id / 1024 and @schema@.has_member(l.low, l.high, l.members, (j.id %% 1024)::int)
       union all
       select 'ready', null, r.attempt, null, null, null, null, null, null, r.partition_id, null from @schema@.ready as r
        where r.range = j.id / 1024 and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
       union all
       select 'ready', null, o.attempt, null, null, null, null, null, null, o.partition_id, null from @schema@.outbox as o where o.job_id = j.id
       union all
       select 'scheduled', null, d.attempt, case when d.due_at < @schema@.paused_from() then d.due_at end, null, null, null, null, null,
              d.partition_id, null
         from @schema@.scheduled as d
        where d.range = j.id / 1024 and @schema@.has_member(d.low, d.high, d.members, (j.id %% 1024)::int)
       union all
       select case when b.cancelled_at is null then 'blocked' else 'ended' end, case when b.cancelled_at is not null then 2 end, 1,
              case when b.cancelled_at is null then b.run_at end, null, b.cancelled_at, null, null,
              case when b.cancelled_at is not null then @schema@.why_cancelled(b.parents) end, b.partition_id, null
         from @schema@.blocked as b where b.job_id = j.id
       union all
       select 'ended', 1, d.attempt, null, d.started_at, d.failed_at, d.worker, null, d.error, d.partition_id, d.cause
         from @schema@.dead as d where d.job_id = j.id
       union all
       select 'ended', e.outcome, e.attempt, null,
              e.finished_at - make_interval(secs => e.start_ages[e.n] / 1e6),
              e.finished_at - make_interval(secs => greatest(0, e.start_ages[e.n] - e.run_times[e.n]) / 1e6),
              e.worker, e.results[e.n], coalesce(e.errors[e.n], e.reason), e.partition_id, null
         from (select f.partition_id, f.outcome, f.attempt, f.finished_at, f.start_ages, f.run_times, f.worker, f.results, f.errors, f.reason,
                      array_position(f.positions, (j.id %% 1024)::smallint) as n
                 from @schema@.finished as f where f.range = j.id / 1024) as e
        where e.n is not null
       limit 1) as s
  join @schema@.partition as p on p.id = s.partition_id
  join @schema@.queue as q on q.id = p.queue_id
  left join lateral (
       select array_agg(f.attempt order by f.attempt, f.at) as attempts, array_agg(f.error order by f.attempt, f.at) as errors,
              array_agg(f.at order by f.attempt, f.at) as ats, array_agg(f.worker order by f.attempt, f.at) as workers
         from @schema@.failure as f where f.job_id = j.id) as f on true
  left join lateral (
       select array_agg(e.at order by e.at) as ats, array_agg(e.edited_by order by e.at) as authors,
              array_agg(e.args::text order by e.at) as args
         from @schema@.edit as e where e.job_id = j.id) as c on true
  left join @schema@.progress as g on g.job_id = j.id
