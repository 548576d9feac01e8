-- name: find_load
-- The number of a load. Index: load's unique name.
select id from @schema@.load where name = %(name)s

-- name: newest_loads
-- The loads that were begun last. Index: the primary key, from its end.
select name, created_at from @schema@.load order by id desc limit %(limit)s

-- name: read_loads
-- Loads, each with where its jobs stand: published, waiting, running, dead letters, ended within the last minute. Only
-- ranges are looked at, never jobs. Index: load_name_is_unique, load_range_of_load, *_of_range.
select l.name, q.name, q.is_paused, l.is_stream, l.is_paused, l.cancelled_at, b.batches, b.rows, b.duplicates, b.age_seconds, b.last_at,
       w.ready, w.scheduled, w.running, w.dead, w.lately
  from (select id, name, queue_id, is_stream, is_paused, cancelled_at from @schema@.load where name = any (%(names)s::text[])) as l
  join @schema@.queue as q on q.id = l.queue_id
 cross join lateral (
       select count(*) as batches, coalesce(sum(rows), 0)::bigint as rows, coalesce(sum(duplicates), 0)::bigint as duplicates,
              extract(epoch from now() - min(published_at))::double precision as age_seconds, max(published_at) as last_at
         from @schema@.load_batch where load_id = l.id) as b
 cross join lateral (
       select coalesce(sum(r.n), 0)::bigint as ready, coalesce(sum(s.n), 0)::bigint as scheduled,
              coalesce(sum(e.n), 0)::bigint as running, coalesce(sum(d.n), 0)::bigint as dead,
              coalesce(sum(f.n), 0)::bigint as lately
         from @schema@.load_range as g
        cross join lateral (select sum(@schema@.members_count(low, high, members)) as n from @schema@.ready where range = g.range) as r
        cross join lateral (select sum(@schema@.members_count(low, high, members)) as n from @schema@.scheduled where range = g.range) as s
        cross join lateral (select sum(@schema@.members_count(low, high, members)) as n from @schema@.lease where range = g.range) as e
        cross join lateral (
              select count(*) as n from @schema@.dead where job_id >= g.range * 1024 and job_id < (g.range + 1) * 1024) as d
        cross join lateral (
              select sum(cardinality(positions)) as n from @schema@.finished
               where range = g.range and finished_at > now() - interval '1 minute') as f
        where g.load_id = l.id) as w

-- name: pause_load
-- Nothing of this load starts from now on; `suspend_load` moves what is ready. Locks: the load's row.
update @schema@.load set is_paused = true where id = %(load)s

-- name: suspend_load
-- Take what is ready of a load out of the order. See @schema@.suspend_load.
select @schema@.suspend_load(%(load)s)

-- name: suspend_paused_loads
-- The same for all paused loads: what became ready since. See @schema@.suspend_paused_loads.
select @schema@.suspend_paused_loads()

-- name: resume_load
-- Let the jobs of a load come back, behind what is ready by now, in the order they had. See @schema@.resume_load.
select @schema@.resume_load(%(load)s)

-- name: mark_load_cancelled
-- A load is cancelled once; the first time stays. Locks: the load's row.
update @schema@.load set cancelled_at = coalesce(cancelled_at, now()) where id = %(load)s

-- name: unstarted_ranges_of_load
-- Ranges of a load of which something waits, or was claimed and may not have started. Index: load_range_of_load.
select g.range, g.size from @schema@.load_range as g
 where g.load_id = %(load)s
   and (exists (select from @schema@.ready where range = g.range)
        or exists (select from @schema@.scheduled where range = g.range)
        or exists (select from @schema@.lease where range = g.range and is_ahead))
 order by g.range limit %(limit)s

-- name: count_unstarted_of_load
-- How many jobs of a load wait, or were claimed and have not started. Only ranges are looked at. Index: load_range_of_load,
-- *_of_range.
select coalesce(sum(w.n), 0)::bigint
  from @schema@.load_range as g
 cross join lateral (
       select @schema@.members_count(low, high, members) as n from @schema@.ready where range = g.range
        union all
       select @schema@.members_count(low, high, members) from @schema@.scheduled where range = g.range
        union all
       select @schema@.members_count(low, high, members) from @schema@.lease where range = g.range and is_ahead) as w
 where g.load_id = %(load)s

-- name: running_ranges_of_load
-- Ranges of a load of which something runs. Index: load_range_of_load.
select g.range, g.size from @schema@.load_range as g
 where g.load_id = %(load)s and exists (select from @schema@.lease where range = g.range)

-- name: forget_stages
-- Forget stages that nobody published within a day. See @schema@.forget_stages.
select @schema@.forget_stages()
