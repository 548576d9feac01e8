-- name: system_figures
-- All that a monitoring system is told of one database, in one statement: whether it takes writes, what it is among the shards, its
-- partitions, queues, tasks that wait without a worker, workers, and what upkeep is behind with; lists as JSON. Of what is ready only the first row
-- of each priority of each partition is read, the first that is out of order, and of what is parked the first of each task:
-- as many rows as there are such heads, whatever the backlog. Of queues with an owner, whose rows do not name a task, the
-- hundred oldest heads are looked up. Index: ready_in_order, ready_out_of_order, ready_parked (each entry found behind
-- the one before), scheduled_by_due_time, the primary keys of job and spent. `lease`, `halted` and the catalogue are read as a whole.
with recursive head(partition_id, priority, ready_at, task, range, first) as (
    (select partition_id, priority, ready_at, task, range, coalesce(nullif(position(B'1' in members), 0) - 1, low)
       from @schema@.ready where not is_parked order by partition_id, priority, pos limit 1)
    union all
    select n.partition_id, n.priority, n.ready_at, n.task, n.range, n.first
      from head as h cross join lateral (
           select partition_id, priority, ready_at, task, range, coalesce(nullif(position(B'1' in members), 0) - 1, low) as first
             from @schema@.ready
            where not is_parked and (partition_id, priority) > (h.partition_id, h.priority)
            order by partition_id, priority, pos limit 1) as n
), displaced(partition_id, ready_at, is_parked) as (
    (select partition_id, ready_at, is_parked from @schema@.ready where pos <> range or is_parked order by partition_id, range limit 1)
    union all
    select n.partition_id, n.ready_at, n.is_parked from displaced as d cross join lateral (
           select partition_id, ready_at, is_parked from @schema@.ready
            where (pos <> range or is_parked) and partition_id > d.partition_id order by partition_id, range limit 1) as n
), parked(partition_id, task, ready_at, n) as (
    (select partition_id, task, ready_at, 1 from @schema@.ready where is_parked and reason is null
      order by partition_id, task limit 1)
    union all
    select n.partition_id, n.task, n.ready_at, p.n + 1 from parked as p cross join lateral (
           select partition_id, task, ready_at from @schema@.ready
            where is_parked and reason is null and (partition_id, task) > (p.partition_id, p.task)
            order by partition_id, task limit 1) as n
     where p.n < %(most_parked)s
), oldest as (
    select partition_id, min(ready_at) as ready_at, min(ready_at) filter (where not is_parked) as in_line_at
      from (select partition_id, ready_at, false as is_parked from head
            union all select partition_id, ready_at, is_parked from displaced) as found
     group by partition_id
), leased as (
    select partition_id, sum(@schema@.members_count(low, high, members))::bigint as jobs from @schema@.lease group by partition_id
), alive as materialized (
    -- A row without slots is a server's, or a driver's: it acts for workers, and runs nothing.
    select id, concurrency from @schema@.worker
     where concurrency > 0 and renewed_at > now() - make_interval(secs => lease_seconds)
), served as materialized (
    select t.queue_id, t.task, t.worker_id from @schema@.worker_task as t join alive as a on a.id = t.worker_id
), crew as (
    select queue_id, count(*) as workers from (select distinct queue_id, worker_id from served) as w group by queue_id
), halt as (
    select queue_id, count(*) as keys, min(since) as since from @schema@.halted group by queue_id
), waiting(partition_id, task, ready_at) as (
    select partition_id, task, ready_at from head where task <> ''
    union all
    select partition_id, task, ready_at from parked
    union all
    select h.partition_id, j.task, h.ready_at
      from (select partition_id, ready_at, range, first from head where task = '' order by ready_at limit 100) as h
     cross join lateral (select task from @schema@.job_stored where id = h.range * 1024 + h.first limit 1) as j
), unserved as (
    select q.name as queue, w.task, min(w.ready_at) as ready_at,
           exists (select from @schema@.task as t where t.queue_id = q.id and t.name = w.task) as is_announced
      from waiting as w join @schema@.partition as p on p.id = w.partition_id join @schema@.queue as q on q.id = p.queue_id
     where q.deleted_at is null and not exists (select from served as s where s.queue_id = q.id and s.task = w.task)
     group by q.id, q.name, w.task
)
select current_setting('default_transaction_read_only') = 'off' and not pg_is_in_recovery(),
       coalesce((select s.state from @schema@.shard as s where s.number = c.number), 'active'),
       coalesce((select json_agg(json_build_array(
                   q.name, p.name, coalesce(d.opened, 0) - coalesce(l.jobs, 0), coalesce(l.jobs, 0), coalesce(d.scheduled, 0),
                   coalesce(d.blocked, 0), coalesce(d.dead, 0), greatest(coalesce(extract(epoch from now() - o.ready_at)::double precision, 0), 0),
                   coalesce(d.enqueued, 0), coalesce(d.completed, 0), coalesce(d.failed, 0), coalesce(d.cancelled, 0),
                   coalesce(d.discarded, 0), coalesce(d.expired, 0),
                   least(q.running_limit, case when q.total_limit is not null then p.permits end), q.max_length, q.rate,
                   case when q.rate is not null or q.total_rate is not null then @schema@.starts_in(p.id) end,
                   greatest(coalesce(extract(epoch from now() - o.in_line_at)::double precision, 0), 0)) order by p.id)
                   from @schema@.partition as p
                   join @schema@.queue as q on q.id = p.queue_id
                   left join @schema@.depth as d on d.partition_id = p.id
                   left join leased as l on l.partition_id = p.id
                   left join oldest as o on o.partition_id = p.id
                  where p.shard = c.number and q.deleted_at is null and (p.state <> 'unused' or d.partition_id is not null)), '[]')::text,
       coalesce((select json_agg(json_build_array(
                   q.name, q.is_paused, q.total_limit, q.total_rate, coalesce(h.keys, 0),
                   greatest(coalesce(extract(epoch from now() - h.since)::double precision, 0), 0), coalesce(w.workers, 0)) order by q.name)
                   from @schema@.queue as q
                   left join halt as h on h.queue_id = q.id
                   left join crew as w on w.queue_id = q.id
                  where q.deleted_at is null), '[]')::text,
       coalesce((select json_agg(json_build_array(
                   u.queue, u.task, u.is_announced, greatest(extract(epoch from now() - u.ready_at)::double precision, 0)) order by u.queue, u.task)
                   from unserved as u), '[]')::text,
       (select count(*) from alive),
       (select count(*) from @schema@.worker where renewed_at <= now() - make_interval(secs => lease_seconds)),
       (select coalesce(sum(concurrency), 0)::bigint from alive),
       greatest(coalesce(extract(epoch from now() - (select min(due_at) from @schema@.scheduled))::double precision, 0), 0),
       (select count(*) from @schema@.trouble where noted_at > clock_timestamp() - interval '2 minutes'),
       pg_relation_size('@schema@.tally')
  from @schema@.catalogue as c
