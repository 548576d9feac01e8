-- name: why_waiting
-- What holds a ready job back: whether its queue is paused, whether its row is parked, how many live workers serve its
-- queue and how many of them know its task, how many jobs stand before it (counted up to a thousand rows), its
-- partition's limit and what runs there (ten of them by name), its rate and how long until it lets the next start,
-- and the shard of its partition's earlier place, if that is waited for.
-- Index: ready_of_range, ready_in_order; `lease` is read as a whole.
select q.is_paused, r.is_parked, r.priority,
       (select count(distinct t.worker_id) from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
         where t.queue_id = q.id and w.renewed_at > now() - make_interval(secs => w.lease_seconds)),
       (select count(*) from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id
         where t.queue_id = q.id and t.task = %(task)s and w.renewed_at > now() - make_interval(secs => w.lease_seconds)),
       (select coalesce(sum(n), 0)::bigint from (
            select @schema@.members_count(a.low, a.high, a.members) as n from @schema@.ready as a
             where a.partition_id = r.partition_id and not a.is_parked and a.priority = r.priority and a.pos < r.pos
             order by a.pos limit 1000) as before)
       + (select count(*) from unnest(@schema@.positions(r.low, r.high, r.members)) as m where m < %(id)s %% 1024),
       (select count(*) from (
            select from @schema@.ready as a
             where a.partition_id = r.partition_id and not a.is_parked and a.priority = r.priority and a.pos < r.pos
             limit 1001) as before) > 1000,
       q.running_limit,
       case when q.running_limit is not null then @schema@.running_in(p.id) end,
       array(select l.range * 1024 + m from @schema@.lease as l, unnest(@schema@.positions(l.low, l.high, l.members)) as m
              where l.partition_id = p.id and q.running_limit is not null order by 1 limit 10),
       case when not q.is_owned then q.rate end,
       case when not q.is_owned then greatest(0, (1 - @schema@.tokens(q.rate, last.full_at, clock_timestamp())) / q.rate) end,
       (select o.shard from @schema@.partition as o where o.id = @schema@.waits_for(p)),
       @schema@.left_unlimited(p)
  from @schema@.ready as r
  join @schema@.partition as p on p.id = r.partition_id
  join @schema@.queue as q on q.id = p.queue_id
 cross join lateral (
       select coalesce((select s.full_at from @schema@.spent as s where s.partition_id = p.id order by s.id desc limit 1),
                       now()) as full_at) as last
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
-- where that is within its lease), and how many workers are alive. Index: lease_of_range.
select w.id is null,
       case when w.renewed_at <= now() - make_interval(secs => w.lease_seconds)
            then extract(epoch from now() - greatest(w.renewed_at, w.started_at))::double precision end,
       (select count(*) from @schema@.worker as o where o.renewed_at > now() - make_interval(secs => o.lease_seconds))
  from @schema@.lease as l left join @schema@.worker as w on w.id = l.worker_id
 where l.range = %(id)s / 1024 and @schema@.has_member(l.low, l.high, l.members, (%(id)s %% 1024)::int)

-- name: server_settings
-- What the doctor wants to know of a server: its version, what a crash would lose, its clock, whether it takes writes.
select current_setting('server_version_num')::int, current_setting('server_version'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('synchronous_commit'), clock_timestamp(),
       current_setting('default_transaction_read_only') = 'off' and not pg_is_in_recovery(), current_setting('jit') = 'on'

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
-- How many workers have renewed their row in time, and how many rows there are.
select count(*) filter (where renewed_at > now() - make_interval(secs => lease_seconds)), count(*) from @schema@.worker

-- name: tasks_without_timeout
-- Tasks of live workers whose handlers may take as long as they like.
select distinct q.name, t.task
  from @schema@.worker_task as t join @schema@.worker as w on w.id = t.worker_id join @schema@.queue as q on q.id = t.queue_id
 where not t.has_timeout and w.renewed_at > now() - make_interval(secs => w.lease_seconds)
 order by 1, 2 limit 20

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
 where not exists (
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
-- How many jobs were set aside, the first hundred of them, and the reason of the first. Index: ready_parked.
select count(*), coalesce((array_agg(range * 1024 + low order by range, low))[:100], '{}'),
       (array_agg(reason order by range, low))[1]
  from @schema@.ready where is_parked and reason is not null
