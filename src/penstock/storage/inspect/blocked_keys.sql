-- name: halted_keys_of_queue
-- The keys of a queue that have waited longest for a person, one row each, and whether their dead letter can be retried. Index:
-- halted_by_time.
select h.key, h.job_id, h.since, null::timestamptz, exists (select from @schema@.dead as d where d.job_id = h.job_id)
  from (select key, job_id, since from @schema@.halted where queue_id = %(queue)s order by since, key limit %(limit)s) as h
 order by h.since, h.key

-- name: held_keys_of_queue
-- The keys of a queue that wait for the retry of a job and are not halted, one row each, among so many such jobs. Index:
-- scheduled_holding, the primary key of halted, failure_of_job.
select distinct on (j.key) j.key, j.id, coalesce((select max(f.at) from @schema@.failure as f where f.job_id = j.id), j.enqueued_at),
       s.due_at, true
  from (select s.range * 1024 + m as id, s.due_at
          from @schema@.partition as p
         cross join lateral (select range, low, high, members, due_at from @schema@.scheduled
                              where partition_id = p.id and pos is not null limit %(limit)s) as s
         cross join lateral unnest(@schema@.positions(s.low, s.high, s.members)) as m
         where p.queue_id = %(queue)s limit %(limit)s) as s
 cross join lateral (select id, key, enqueued_at from @schema@.job_stored where id = s.id limit 1) as j
 where j.key is not null and not exists (select from @schema@.halted as h where h.queue_id = %(queue)s and h.key = j.key)
 order by j.key, s.due_at desc

-- name: halted_by
-- The queue in which a job halts its key; no row where it halts none. Index: queue_name_is_unique, the
-- primary key of halted.
select h.queue_id, (select count(*) from @schema@.partition as p where p.queue_id = h.queue_id)
  from @schema@.queue as q join @schema@.halted as h on h.queue_id = q.id
 where q.name = %(queue)s and h.key = %(key)s::bytea and h.job_id = %(id)s

-- name: count_behind
-- How many jobs of these keys are among the first that are ready in each partition, about so many of them; and, without a key,
-- whether there are more than those. Index: ready_in_order, the primary key of the tables that hold jobs.
with first as materialized (
    select r.range, r.low, r.high, r.members,
           sum(r.jobs) over (partition by p.id order by r.priority, r.pos rows unbounded preceding) as jobs, r.jobs as own
      from @schema@.partition as p
     cross join lateral (
           select range, low, high, members, priority, pos, @schema@.members_count(low, high, members) as jobs
             from @schema@.ready where partition_id = p.id and not is_parked order by priority, pos limit %(most)s) as r
     where p.queue_id = %(queue)s
)
select j.key, count(distinct j.id)
  from first as r
 cross join lateral (
       select id, key from @schema@.job_stored
        where id >= r.range * 1024 + r.low and id < r.range * 1024 + r.high and key = any (%(keys)s::bytea[]) offset 0) as j
 where r.jobs - r.own < %(most)s and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
 group by j.key
 union all
select null, 1 from first having max(jobs) > %(most)s or count(*) filter (where jobs = %(most)s) > 0
