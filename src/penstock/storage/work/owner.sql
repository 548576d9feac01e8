-- name: share_partitions
-- See @schema@.share_partitions. Locks: rows of free partitions, skipping those that are locked.
select partition_id, queue_id, owner_epoch, is_surplus, permits, tokens from @schema@.share_partitions(%(worker)s)

-- name: give_up_partitions
-- Let another worker own these partitions. See @schema@.give_up_partitions.
select @schema@.give_up_partitions(%(worker)s, %(partitions)s::int[])

-- name: leave_crews
-- A worker that stops takes no share any more. Index: the primary key of worker_task.
delete from @schema@.worker_task where worker_id = %(worker)s and queue_id = any (%(queues)s::int[])

-- name: lock_job_tables
-- Before a transaction takes its snapshot: no table of jobs is detached while it reads by it. What prune moved after the
-- snapshot would be seen in neither table, and a key that is busy be taken for free. Locks: `job`, as every reader does.
lock table only @schema@.job in access share mode

-- name: read_snapshot
-- Which transactions have ended, and which server says so: rows are read by it.
select pg_current_snapshot()::text, @schema@.this_server()

-- name: read_new_rows
-- Rows that an owner has not seen though it has read beyond their `pos`: written since its last look, whose snapshot
-- is given; what was set aside bears no transaction. Index: ready_changed. What a restored dump brought along bears numbers of another server, which may lie
-- ahead: it is not new.
select r.priority, r.pos, r.range, r.low, r.high, r.members::text, r.attempt, r.rescues, r.epoch,
       extract(epoch from r.ready_at)::double precision
  from (select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at, changed from @schema@.ready
         where partition_id = %(partition)s and changed >= pg_snapshot_xmax(%(before)s::pg_snapshot)
        union all
        select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at, changed from @schema@.ready
         where partition_id = %(partition)s and changed = any (array(select pg_snapshot_xip(%(before)s::pg_snapshot)))) as r
 where r.pos < (%(starts)s::bigint[])[r.priority + 1]
   and r.changed < pg_snapshot_xmax(pg_current_snapshot())

-- name: read_news
-- See @schema@.news_since: the partitions that something came to, and the snapshot of now. Index: ready_news.
select pg_current_snapshot()::text, @schema@.this_server(), @schema@.news_since(%(before)s::pg_snapshot)

-- name: list_ready
-- The same without a snapshot before: the partitions in which anything is ready, each found behind the one before. Index:
-- ready_in_order.
with recursive found(id) as (
    (select partition_id from @schema@.ready where not is_parked order by partition_id, priority, pos limit 1)
    union all
    select (select r.partition_id from @schema@.ready as r where not r.is_parked and r.partition_id > f.id
             order by r.partition_id, r.priority, r.pos limit 1)
      from found as f where f.id is not null
)
select pg_current_snapshot()::text, @schema@.this_server(), array(select id from found where id is not null)

-- name: read_next_rows
-- The next rows of a partition, by priority and `pos`, from where the owner's last look ended. Index: ready_in_order.
select r.priority, r.pos, r.range, r.low, r.high, r.members::text, r.attempt, r.rescues, r.epoch,
       extract(epoch from r.ready_at)::double precision
  from generate_series(0, 9) as level(priority)
 cross join lateral (
       select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at from @schema@.ready
        where partition_id = %(partition)s and not is_parked and priority = level.priority
          and pos >= (%(starts)s::bigint[])[level.priority + 1]
        order by pos fetch first (%(rows)s) rows with ties) as r

-- name: read_rows
-- Both, by one snapshot, which is told with each row: first what is new, then what is next. One statement has one snapshot,
-- and needs no transaction for it. Index: ready_changed, ready_in_order.
select pg_current_snapshot()::text, @schema@.this_server(), r.is_next, r.priority, r.pos, r.range, r.low, r.high, r.members::text,
       r.attempt, r.rescues, r.epoch, extract(epoch from r.ready_at)::double precision
  from (values (1)) as one
  left join (
       select false as is_next, n.priority, n.pos, n.range, n.low, n.high, n.members, n.attempt, n.rescues, n.epoch, n.ready_at
         from (select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at, changed from @schema@.ready
                where partition_id = %(partition)s and changed >= pg_snapshot_xmax(%(before)s::pg_snapshot)
               union all
               select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at, changed from @schema@.ready
                where partition_id = %(partition)s
                  and changed = any (array(select pg_snapshot_xip(%(before)s::pg_snapshot)))) as n
        where n.pos < (%(starts)s::bigint[])[n.priority + 1]
          and n.changed < pg_snapshot_xmax(pg_current_snapshot())
       union all
       select true, n.priority, n.pos, n.range, n.low, n.high, n.members, n.attempt, n.rescues, n.epoch, n.ready_at
         from generate_series(0, 9) as level(priority)
        cross join lateral (
              select priority, pos, range, low, high, members, attempt, rescues, epoch, ready_at from @schema@.ready
               where partition_id = %(partition)s and not is_parked and priority = level.priority
                 and pos >= (%(starts)s::bigint[])[level.priority + 1]
               order by pos fetch first (%(rows)s) rows with ties) as n) as r on true

-- name: read_running
-- The jobs of a partition that anybody holds a lease of, and which of them may come back without having started.
select l.range * 1024 + m, j.key, l.is_ahead or not exists (select from @schema@.worker as w where w.id = l.worker_id)
  from @schema@.lease as l
 cross join lateral unnest(@schema@.positions(l.low, l.high, l.members)) as m
 cross join lateral (select key from @schema@.job_stored where id = l.range * 1024 + m limit 1) as j
 where l.partition_id = %(partition)s

-- name: read_permits
-- How many jobs may run in a partition of a queue with a total_limit, and start in one of a queue with a total_rate; null
-- where it has none any more.
select case when q.total_limit is not null then p.permits end,
       case when q.total_rate is not null then @schema@.total_tokens(p.id) end
  from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id where p.id = %(partition)s

-- name: read_held
-- The retries of a partition that wait for their time and hold their key meanwhile. Index: scheduled_of_partition.
select s.range * 1024 + m, j.key
  from @schema@.scheduled as s
 cross join lateral unnest(@schema@.positions(s.low, s.high, s.members)) as m
 cross join lateral (select key from @schema@.job_stored where id = s.range * 1024 + m limit 1) as j
 where s.partition_id = %(partition)s and s.pos is not null

-- name: read_halted
-- The keys of a queue that wait for a person.
select key from @schema@.halted where queue_id = %(queue)s

-- name: note_idle
-- As of a snapshot each, nothing in these partitions can start, of those that are still this owner's. Locks: the rows of the
-- partitions for share, then of `idle_partition`, by id.
insert into @schema@.idle_partition (partition_id, as_of, server)
select g.id, g.as_of::pg_snapshot, %(server)s from unnest(%(partitions)s::int[], %(as_of)s::text[]) as g(id, as_of)
 where g.id = any (@schema@.owned_partitions(%(worker)s, %(server)s, %(partitions)s::int[], %(owner_epochs)s::bigint[]))
 order by g.id
on conflict (partition_id) do update set as_of = excluded.as_of, server = excluded.server

-- name: has_work_of_others
-- Whether partitions that others own, or nobody, have ready jobs that their owner has not found to wait for something.
-- Index: ready_changed.
select exists (
    select from @schema@.worker_task as t
      join @schema@.queue as q on q.id = t.queue_id and q.is_owned and not q.is_paused
      join @schema@.partition as p on p.queue_id = q.id and p.owner_id is distinct from %(worker)s
      left join @schema@.idle_partition as n on n.partition_id = p.id and n.server = @schema@.this_server()
           and exists (select from @schema@.worker as w where w.id = p.owner_id)
     cross join lateral (
           select from @schema@.ready as r
            where r.partition_id = p.id and r.changed is not null
              and (n.as_of is null or not pg_visible_in_snapshot(r.changed, n.as_of)) limit 1) as r
     where t.worker_id = %(worker)s)

-- name: read_single_keys
-- Of intervals of ids, those whose jobs are all of one key, task and tenant: their first job. The last and the middle one are
-- looked at first, so that ranges of many keys cost next to nothing. Index: the primary key of job.
select g.low, g.high, f.key, f.task, f.attributes ->> 'tenant'
  from unnest(%(lows)s::bigint[], %(highs)s::bigint[]) as g(low, high)
 cross join lateral (select key, task, attributes from @schema@.job where id = g.low and key is not null offset 0) as f
 cross join lateral (select key from @schema@.job where id = g.high - 1 offset 0) as l
 cross join lateral (select key from @schema@.job where id = (g.low + g.high) / 2 offset 0) as m
 where l.key = f.key and m.key = f.key
   and (select count(*) = g.high - g.low and bool_and(j.key is not distinct from f.key and j.task = f.task
               and j.attributes ->> 'tenant' is not distinct from f.attributes ->> 'tenant')
          from @schema@.job as j where j.id >= g.low and j.id < g.high)

-- name: read_queue_rules
-- The rules that an owner obeys, as of now.
select q.id, q.rules::text, q.weights::text, q.is_paused
  from @schema@.queue as q where q.id = any (%(queues)s::int[])

-- name: read_partitions
-- Every partition of these queues on this shard, those too that a resize removed or has just added, how many of whichever
-- queues there are up to each, and the version of the catalogue; that alone, where it is the one that is known.
select c.version, p.id, p.queue_id, p.place
  from @schema@.catalogue as c
  left join lateral (
       select id, queue_id, place
         from (select id, queue_id, row_number() over (order by id) as place
                 from @schema@.partition where shard = c.number and c.version <> %(known)s) as here
        where queue_id = any (%(queues)s::int[])) as p on true
 order by p.id

-- name: still_ready
-- Which of these jobs are ready in a partition. Index: ready_of_range.
select g.id from unnest(%(jobs)s::bigint[]) as g(id)
 where exists (select from @schema@.ready as r
                where r.range = g.id / 1024 and r.partition_id = %(partition)s
                  and @schema@.has_member(r.low, r.high, r.members, (g.id %% 1024)::int))

-- name: undrained_maps
-- See @schema@.undrained_maps: one look. Index: ready_of_epoch.
select epoch, partition_ids, open_ids, held_keys from @schema@.undrained_maps(%(queue)s)

-- name: read_waiting_jobs
-- Jobs as an owner reads them ahead: what is not asked for is null, and so are long arguments, which are read when the job
-- starts. Index: the primary key of the tables that `which` leaves.
select id, case when {with_args} and pg_column_size(args) < 2000 then args::text end, key,
       case when {with_args} then attributes::text end, task, case when {with_tenant} then attributes ->> 'tenant' end
  from @schema@.{table} where {which}
