-- name: blocked_keys
-- The keys of a queue that wait for the retry of a job or for a person, one row each, and whether that job can be
-- retried. Index: scheduled_holding.
select distinct on (b.key) b.key, b.job_id, b.since, b.due_at, b.can_retry
  from (select j.key, j.id as job_id, s.due_at, true as can_retry,
               coalesce((select max(f.at) from @schema@.failure as f where f.job_id = j.id), j.enqueued_at) as since
          from @schema@.partition as p
          join @schema@.scheduled as s on s.partition_id = p.id and s.pos is not null
         cross join lateral unnest(@schema@.positions(s.low, s.high, s.members)) as m
         cross join lateral (select id, key, enqueued_at from @schema@.job_stored where id = s.range * 1024 + m limit 1) as j
         where p.queue_id = %(queue)s and j.key is not null
        union all
        select h.key, h.job_id, null, exists (select from @schema@.dead as d where d.job_id = h.job_id), h.since
          from @schema@.halted as h where h.queue_id = %(queue)s) as b
 order by b.key, b.due_at desc nulls first

-- name: halted_longest
-- The keys of a queue that have waited longest for a person. Reads what is halted of the queue, and no job.
select h.key, h.job_id, h.since, exists (select from @schema@.dead as d where d.job_id = h.job_id)
  from (select key, job_id, since from @schema@.halted where queue_id = %(queue)s order by since, key limit %(limit)s) as h
 order by h.since, h.key

-- name: count_behind
-- How many jobs of these keys are ready. Looks at every range of the queue: for a person. Index: ready_in_order.
select j.key, count(distinct j.id)
  from @schema@.partition as p join @schema@.ready as r on r.partition_id = p.id and not r.is_parked
 cross join lateral (
       select id, key from @schema@.job_stored
        where id >= r.range * 1024 + r.low and id < r.range * 1024 + r.high and key = any (%(keys)s::bytea[]) offset 0) as j
 where p.queue_id = %(queue)s and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
 group by j.key
