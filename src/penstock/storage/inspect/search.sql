-- name: search
-- What has a text as a part of its name, in any case (queues, tasks, crons, loads, workers), or as all of its name (idempotency keys, halted
-- keys, and keys and tags of the newest thousand jobs that are here), but no more than so many of each. Only the newest ten thousand loads
-- are looked at, and the one of that name. Locks: none. Index: the primary keys of halted, dedup and load, backwards that of job,
-- load_name_is_unique, ready_parked (each entry found behind the one before). `queue`, `task`, `cron` and `worker` are read as a whole.
with recursive asked as (
    select lower(%(text)s::text) as part, %(text)s::text as text, %(key)s::bytea as key
), open_queue as materialized (
    select id, name from @schema@.queue
     where deleted_at is null and (%(queues)s::text[] is null or name = any (%(queues)s::text[]))
), fitting as materialized (
    -- Whether they are here is asked of these alone.
    select id, partition_id, has_key, has_tag
      from (select id, partition_id, key = %(key)s::bytea as has_key, attributes -> 'tags' ? %(text)s::text as has_tag
              from @schema@.job order by id desc limit 1000) as newest
     where has_key or has_tag order by id desc limit 100
), parked(partition_id, task, n) as (
    -- Tasks that wait and that nobody has; where nobody ever had them they are in no catalogue.
    (select partition_id, task, 1 from @schema@.ready where is_parked and reason is null order by partition_id, task limit 1)
    union all
    select n.partition_id, n.task, p.n + 1 from parked as p cross join lateral (
           select partition_id, task from @schema@.ready
            where is_parked and reason is null and (partition_id, task) > (p.partition_id, p.task)
            order by partition_id, task limit 1) as n
     where p.n < %(most_parked)s
), named_task as (
    select queue_id, name from @schema@.task
     union
    select p.queue_id, k.task from parked as k join @schema@.partition as p on p.id = k.partition_id
), recent as (
    select f.id, q.name as queue, f.has_key, f.has_tag
      from fitting as f join @schema@.partition as p on p.id = f.partition_id join open_queue as q on q.id = p.queue_id
     where @schema@.is_here(f.id)
)
(select 'key', a.text, q.name, h.job_id
   from asked as a cross join open_queue as q
  cross join lateral (select job_id from @schema@.halted where queue_id = q.id and key = a.key limit 1) as h limit %(limit)s)
union all
(select 'idempotency-key', a.text, q.name, d.job_id
   from asked as a cross join open_queue as q
  cross join lateral (select job_id from @schema@.dedup where queue_id = q.id and idempotency_key = a.text limit 1) as d limit %(limit)s)
union all
(select 'key', a.text, r.queue, max(r.id) from recent as r cross join asked as a where r.has_key group by a.text, r.queue limit %(limit)s)
union all
(select 'tag', a.text, r.queue, max(r.id) from recent as r cross join asked as a where r.has_tag group by a.text, r.queue limit %(limit)s)
union all
(select 'queue', q.name, q.name, null from open_queue as q cross join asked as a
  where strpos(lower(q.name), a.part) > 0 order by strpos(lower(q.name), a.part), length(q.name), q.name limit %(limit)s)
union all
(select 'task', t.name, q.name, null from named_task as t join open_queue as q on q.id = t.queue_id cross join asked as a
  where strpos(lower(t.name), a.part) > 0 order by strpos(lower(t.name), a.part), length(t.name), t.name, q.name limit %(limit)s)
union all
(select 'cron', c.name, q.name, null from @schema@.cron as c join open_queue as q on q.id = c.queue_id cross join asked as a
  where not c.is_leaving and strpos(lower(c.name), a.part) > 0 order by strpos(lower(c.name), a.part), length(c.name), c.name limit %(limit)s)
union all
(select 'load', l.name, q.name, null
   from (select name, queue_id from @schema@.load where name = %(text)s
         union
         select name, queue_id from (select name, queue_id from @schema@.load order by id desc limit 10000) as n
          where strpos(lower(n.name), lower(%(text)s)) > 0) as l
   join open_queue as q on q.id = l.queue_id cross join asked as a
  order by strpos(lower(l.name), a.part), length(l.name), l.name limit %(limit)s)
union all
(select 'worker', w.name, null, w.id from @schema@.worker as w cross join asked as a
  where %(queues)s::text[] is null and strpos(lower(w.name), a.part) > 0 order by w.name limit %(limit)s)
