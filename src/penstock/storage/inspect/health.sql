-- name: why_waiting
-- What holds a ready job back: whether its queue is paused, whether its row is parked, how many live workers serve its
-- queue and how many of them know its task, how many jobs stand before it (counted up to a thousand rows), its
-- partition's limit and what runs there (ten of them by name), its rate and how long until it lets the next start,
-- the shard of its partition's earlier place, if that is waited for, its queue's total_limit and its partition's permits, its
-- queue's total_rate and its partition's tokens; and where its task's handler is given several jobs together, how many, how many of these wait, and how long they may still.
-- Index: ready_of_range, ready_in_order; `lease` is read as a whole.
select q.is_paused, r.is_parked, r.priority,
       (select count(distinct t.worker_id) from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
         where t.queue_id = q.id and w.renewed_at > now() - make_interval(secs => w.lease_seconds)),
       (select count(*) from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
         where t.queue_id = q.id and t.task = %(task)s and w.renewed_at > now() - make_interval(secs => w.lease_seconds)),
       before.jobs + (select count(*) from unnest(@schema@.positions(r.low, r.high, r.members)) as m where m < %(id)s %% 1024),
       before.is_cut,
       q.running_limit,
       case when q.running_limit is not null or q.total_limit is not null then @schema@.running_in(p.id) end,
       array(select l.range * 1024 + m from @schema@.lease as l, unnest(@schema@.positions(l.low, l.high, l.members)) as m
              where l.partition_id = p.id and (q.running_limit is not null or q.total_limit is not null) order by 1 limit 10),
       case when not q.is_owned then q.rate end,
       case when not q.is_owned then greatest(0, (1 - @schema@.tokens(q.rate, last.full_at, clock_timestamp())) / q.rate) end,
       (select o.shard from @schema@.partition as o where o.id = @schema@.waits_for(p)),
       @schema@.left_unlimited(p), q.id, q.total_limit, p.permits,
       q.total_rate, case when q.total_rate is not null then @schema@.total_tokens(p.id) end,
       batch.size, batch.jobs, batch.seconds
  from @schema@.ready as r
  join @schema@.partition as p on p.id = r.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 cross join lateral (
       select coalesce(sum(b.n), 0)::bigint as jobs, count(*) > 1000 as is_cut from (
            select @schema@.members_count(a.low, a.high, a.members) as n from @schema@.ready as a
             where a.partition_id = r.partition_id and not a.is_parked and a.priority = r.priority and a.pos < r.pos
             order by a.pos limit 1001) as b) as before
 cross join lateral (
       select coalesce((select s.full_at from @schema@.spent as s where s.partition_id = p.id order by s.id desc limit 1),
                       now()) as full_at) as last
  left join lateral (
       select t.batch as size, case when not q.is_owned then w.jobs end as jobs,
              extract(epoch from case when q.is_owned then r.ready_at else w.oldest end - clock_timestamp())::double precision
                  + t.batch_wait_seconds as seconds
         from @schema@.worker_task as t join @schema@.worker as o on o.id = t.worker_id
        cross join lateral (
              select sum(a.n)::int as jobs, min(a.ready_at) as oldest
                from (select ready_at, @schema@.members_count(low, high, members) as n from @schema@.ready
                       where partition_id = r.partition_id and not is_parked and priority = r.priority and task = r.task
                         and attempt = 1 and rescues = 0
                       order by pos limit t.batch) as a) as w
        where t.queue_id = q.id and t.task = %(task)s and t.batch is not null and r.attempt = 1 and r.rescues = 0
          and o.renewed_at > now() - make_interval(secs => o.lease_seconds)
        order by t.batch_wait_seconds limit 1) as batch on true
 where r.range = %(id)s / 1024 and @schema@.has_member(r.low, r.high, r.members, (%(id)s %% 1024)::int)

-- name: parents_waited_for
-- Of a child that waits or is cancelled for now: the parents that have not ended; the dead letters here among its ancestors,
-- by way of those that are cancelled for now too; and jobs of other shards that did not succeed there and may come back.
-- Index: the primary keys, finished_of_range.
with recursive child as (
    select parents, on_parent_failure from @schema@.blocked where job_id = %(id)s
), ancestor as (
    select p.id from child as c, unnest(c.parents) as p(id) where c.on_parent_failure <> 'run'
    union
    select p.id from ancestor as a join @schema@.blocked as b on b.job_id = a.id and b.cancelled_at is not null, unnest(b.parents) as p(id)
)
select array(select p.id from unnest(c.parents) as p(id) where @schema@.outcome_of(p.id) is null order by p.id limit 100),
       array(select a.id from ancestor as a join @schema@.dead as d on d.job_id = a.id order by a.id limit 100),
       array(select a.id from ancestor as a join @schema@.parent_end as e on e.job_id = a.id and not e.is_final order by a.id limit 100)
  from child as c

-- name: is_asked_to_stop
-- Whether somebody asked that a running job be stopped. Index: the primary key.
select exists (select from @schema@.cancellation where job_id = %(id)s)

-- name: holder_of_job
-- Of a job under a lease: whether its worker has left or was declared dead, for how long it has not been heard of (null
-- where that is within its lease), how many workers are alive, the other jobs of its batch, and in a run the first that has
-- not ended, where it is behind that. Index: lease_of_range; `lease` is read as a whole.
select w.id is null,
       case when w.renewed_at <= now() - make_interval(secs => w.lease_seconds)
            then extract(epoch from now() - greatest(w.renewed_at, w.started_at))::double precision end,
       (select count(*) from @schema@.worker as o where o.renewed_at > now() - make_interval(secs => o.lease_seconds)),
       array(select b.range * 1024 + m from @schema@.lease as b
              cross join lateral unnest(@schema@.positions(b.low, b.high, b.members)) as m
              where b.batch = l.batch and b.worker_id = l.worker_id and b.partition_id = l.partition_id
                and b.range * 1024 + m <> %(id)s
              order by 1),
       (select j.id from @schema@.lease as b
         cross join lateral unnest(@schema@.positions(b.low, b.high, b.members)) as m
         cross join lateral (select id, key from @schema@.job_stored where id = b.range * 1024 + m limit 1) as j
         where l.is_ahead and l.batch is null and b.worker_id = l.worker_id and b.partition_id = l.partition_id
           and j.key = %(key)s and (b.pos, j.id) < (l.pos, %(id)s)
           and exists (select from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
                        where p.id = l.partition_id and q.per_key = 1)
         order by b.pos, j.id limit 1)
  from @schema@.lease as l left join @schema@.worker as w on w.id = l.worker_id
 where l.range = %(id)s / 1024 and @schema@.has_member(l.low, l.high, l.members, (%(id)s %% 1024)::int)

-- name: server_settings
-- What the doctor wants to know of a server: its version, what a crash would lose, its clock, whether it takes writes.
select current_setting('server_version_num')::int, current_setting('server_version'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('synchronous_commit'), clock_timestamp(),
       current_setting('default_transaction_read_only') = 'off' and not pg_is_in_recovery(), current_setting('jit') = 'on'

-- name: spill_at_once
-- In this transaction results go to temporary files as soon as they can.
set local work_mem = '64kB'

-- name: spill_to_disk
-- Writes a temporary file of a megabyte, where there is room; takes no lock and needs no right.
select count(*) from generate_series(1, 80000) as filling

-- name: oldest_transaction
-- The longest open transaction in this database, in seconds, its process, and the sessions that hide theirs: of other
-- roles nothing but the name is seen without pg_read_all_stats.
select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::double precision,
       (array_agg(pid order by xact_start) filter (where xact_start is not null))[1],
       count(*) filter (where backend_type is null)
  from pg_stat_activity
 where datname = current_database() and usesysid is not null and pid <> pg_backend_pid()
   and coalesce(backend_type, 'client backend') = 'client backend'

-- name: dead_tuples
-- Rows that are gone but not cleaned up, in the tables that every job passes through.
select relname, n_dead_tup, n_live_tup from pg_stat_user_tables
 where schemaname = '@schema@' and relname in ('ready', 'lease', 'scheduled', 'tally') order by relname

-- name: tables_ahead
-- How many range numbers fit into the tables that exist, how many tables are attached, and slices not yet opened.
select (select max(high) from @schema@.job_table) - (select last_value from @schema@.range_number),
       (select count(*) from pg_inherits where inhparent = '@schema@.job'::regclass),
       (select count(*) from @schema@.slice where used_from is null)

-- name: archive_facts
-- The last archive: where it went to, whether it came to its end, whether one runs now, and the slices on their way.
select d.location, to_char(d.began_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), d.ended_at is not null,
       exists (select from pg_locks as l
                where l.locktype = 'advisory' and l.granted and l.objsubid = 1
                  and l.database = (select oid from pg_database where datname = current_database())
                  and (l.classid::bigint << 32 | l.objid::bigint) = hashtext('@schema@.archive')::bigint),
       array(select number from @schema@.slice where taken_at is not null order by number)
  from @schema@.archive_duty as d

-- name: workers_alive
-- How many workers have renewed their row in time, and how many rows there are. One without slots is a server's, or a
-- driver's: it acts for workers, and runs nothing.
select count(*) filter (where renewed_at > now() - make_interval(secs => lease_seconds)), count(*) from @schema@.worker
 where concurrency > 0

-- name: tasks_without_timeout
-- Tasks of live workers whose handlers may take as long as they like.
select distinct q.name, t.task
  from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id join @schema@.queue as q on q.id = t.queue_id
 where q.deleted_at is null and t.timeout_seconds = 'infinity' and w.renewed_at > now() - make_interval(secs => w.lease_seconds)
 order by 1, 2 limit 20

-- name: backlogs
-- Partitions of queues that run in which the oldest ready job has waited for longer than so many seconds. What is parked is
-- told as tasks without a worker; one that lost its place behind such a one is not seen. Index: ready_in_order, ready_out_of_order.
select s.partition, extract(epoch from now() - line.ready_at)::double precision, s.waiting
  from @schema@.partition_stats as s
 cross join lateral (
       select min(head.ready_at) as ready_at from (
           select r.ready_at from generate_series(0, 9) as level(priority)
            cross join lateral (
                  select ready_at from @schema@.ready
                   where partition_id = s.partition_id and not is_parked and priority = level.priority order by pos limit 1) as r
           union all
           select d.ready_at from (
                  select ready_at, is_parked from @schema@.ready
                   where partition_id = s.partition_id and (pos <> range or is_parked) order by range limit 1) as d
            where not d.is_parked) as head) as line
 where not s.is_paused and s.oldest_wait_seconds > %(seconds)s and line.ready_at < now() - make_interval(secs => %(seconds)s)
 order by 2 desc limit 20

-- name: nearly_full
-- Partitions with such a part or more of what their queue's max_length allows.
select partition, waiting, max_length from @schema@.partition_stats where waiting >= %(share)s * max_length order by 1 limit 20

-- name: halted_keys
-- How many keys of each queue wait for a person, and since when. A scan: they are few, and each is somebody's.
select q.name, count(*), extract(epoch from now() - min(h.since))::double precision
  from @schema@.halted as h join @schema@.queue as q on q.id = h.queue_id group by q.name order by 1 limit 20

-- name: stuck_jobs
-- Jobs that have run for twice their task's timeout and a minute more, or for an hour where it has none, the
-- longest first. `lease` is read as a whole. Index: the primary key of job.
select q.name, j.task, l.range * 1024 + m, extract(epoch from now() - l.claimed_at)::double precision, t.timeout_seconds < 'infinity'
  from @schema@.lease as l join @schema@.partition as p on p.id = l.partition_id join @schema@.queue as q on q.id = p.queue_id
 cross join lateral unnest(@schema@.positions(l.low, l.high, l.members)) as m
 cross join lateral (select task from @schema@.job_stored where id = l.range * 1024 + m limit 1) as j
  join @schema@.worker_task as t on t.worker_id = l.worker_id and t.queue_id = p.queue_id and t.task = j.task
 where not l.is_ahead and l.claimed_at < now() - interval '1 minute'
   and l.claimed_at < now() - make_interval(secs => case when t.timeout_seconds = 'infinity' then 3600
                                                         when t.timeout_seconds < 1e8 then 2 * t.timeout_seconds + 60 end)
 order by 4 desc limit %(limit)s

-- name: divided_tasks
-- Of queues with an owner, the live workers (or the one given) that lack a task of another one, which in turn lacks one
-- of theirs: whichever of the two owns a partition, keys wait there for the other.
with crew as (
    select t.queue_id, w.id, w.name, array_agg(t.task order by t.task) as tasks
      from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
      join @schema@.queue as q on q.id = t.queue_id and q.is_owned
     where w.renewed_at > now() - make_interval(secs => w.lease_seconds)
     group by t.queue_id, w.id
)
select distinct on (q.name, a.id) q.name, a.name, (select min(t) from unnest(b.tasks) as t where t <> all (a.tasks)), b.name
  from crew as a join crew as b on b.queue_id = a.queue_id and not (a.tasks <@ b.tasks or b.tasks <@ a.tasks)
  join @schema@.queue as q on q.id = a.queue_id
 where coalesce(a.id = %(worker)s::bigint, true)
 order by q.name, a.id, b.id limit 20

-- name: jobs_nobody_knows
-- Tasks at the head of a queue that no live worker has a handler for; of queues with an owner, whose ranges hold jobs of
-- any task, the first jobs of the first ranges. Index: ready_in_order, ready_parked.
select distinct q.name, r.task
  from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
 cross join lateral (
       (select a.task from @schema@.ready as a where a.partition_id = p.id and a.is_parked and a.reason is null limit 100)
       union
       (select h.task from generate_series(0, 9) as level(priority)
         cross join lateral (select a.task from @schema@.ready as a
              where a.partition_id = p.id and not a.is_parked and a.priority = level.priority order by a.pos limit 10) as h
         where not q.is_owned)
       union
       (select j.task from (
            select a.range, a.low, a.high, a.members from @schema@.ready as a
             where a.partition_id = p.id and q.is_owned and not a.is_parked order by a.priority, a.pos limit 10) as a
         cross join lateral (select m from unnest(@schema@.positions(a.low, a.high, a.members)) as m limit 100) as m
         cross join lateral (select task from @schema@.job_stored where id = a.range * 1024 + m.m limit 1) as j)) as r
 where q.deleted_at is null and not exists (
       select from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
        where t.queue_id = q.id and t.task = r.task and w.renewed_at > now() - make_interval(secs => w.lease_seconds))
 order by 1, 2 limit 20

-- name: troubles
-- Duties of upkeep that fail again and again, the one that has failed longest first; what nobody has noted for two minutes
-- ended with whoever noted it.
select duty, error, extract(epoch from clock_timestamp() - since)::double precision from @schema@.trouble
 where noted_at > clock_timestamp() - interval '2 minutes' order by since

-- name: on_its_way
-- Where a job is being carried to, and what it will be there. Index: outbox_of_job.
select shard, coalesce(facts ->> 'state', 'ready') from @schema@.outbox where job_id = %(id)s limit 1

-- name: why_set_aside
-- Why a job was set aside, since when it waits, and in which queue. Index: ready_of_range.
select r.reason, r.ready_at, q.name
  from @schema@.ready as r join @schema@.partition as p on p.id = r.partition_id join @schema@.queue as q on q.id = p.queue_id
 where r.range = %(id)s / 1024 and @schema@.has_member(r.low, r.high, r.members, (%(id)s %% 1024)::int) and r.reason is not null

-- name: jobs_set_aside
-- By queue, how many jobs were set aside, the first hundred of them, the reason of the first, and since when it is ready. Of each task of each
-- partition a thousand are counted, among as many pairs of these as have anything parked, but no more than so many. Index:
-- ready_parked (each pair found behind the one before).
with recursive pair(partition_id, task, n) as (
    (select partition_id, task, 1 from @schema@.ready where is_parked order by partition_id, task limit 1)
    union all
    select f.partition_id, f.task, p.n + 1 from pair as p cross join lateral (
           select partition_id, task from @schema@.ready
            where is_parked and (partition_id, task) > (p.partition_id, p.task) order by partition_id, task limit 1) as f
     where p.n < %(most_parked)s
)
select q.name, count(*), (array_agg(a.range * 1024 + a.low order by a.range, a.low))[:100],
       (array_agg(a.reason order by a.range, a.low))[1], min(a.ready_at)
  from pair as f
 cross join lateral (
       select range, low, reason, ready_at from @schema@.ready
        where partition_id = f.partition_id and task = f.task and is_parked and (reason is not null) limit 1000) as a
  join @schema@.partition as p on p.id = f.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 group by q.name order by q.name
