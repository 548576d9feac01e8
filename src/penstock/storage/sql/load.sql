-- name: publish_load
-- See penstock.publish_load. Locks: the queue's map (shared), the load's row, its ranges, idempotency keys in order.
select is_new, rows, duplicates, bad_rows, published_at
  from penstock.publish_load(%(name)s, %(queue)s, %(batch)s, %(is_stream)s, %(origin)s, %(stages)s::text[],
                             %(counts)s::int[], %(bad_rows)s)

-- name: find_batch
-- What was published under a name. Index: load_name_is_unique, the primary key.
select q.name, l.is_stream, b.rows, b.duplicates, b.bad_rows, b.published_at
  from penstock.load as l join penstock.queue as q on q.id = l.queue_id
  left join penstock.load_batch as b on b.load_id = l.id and b.batch = %(batch)s
 where l.name = %(name)s

-- name: drop_stages
-- Forgets stages that are not to be published. Index: load_range_of_stage.
delete from penstock.load_range where stage = any (%(stages)s::text[]) and load_id is null

-- name: enter_stage
-- For the driver of bulk writes, with its kind of parameters.
select penstock.enter_stage($1, $2::int)

-- name: draw_staged_ranges
select penstock.draw_range() as range from generate_series(1, $1::int)

-- name: stage_time
select now()

-- name: stage_ranges
select penstock.stage_ranges($1, $2::text::json)

-- name: find_load
select id from penstock.load where name = %(name)s

-- name: read_loads
-- Loads, newest first, each with where its jobs stand: published, waiting, running, dead letters, ended within the last
-- minute. Only ranges are looked at, never jobs. Index: load_range_of_load, *_of_range.
select l.name, q.name, l.is_stream, l.is_paused, l.cancelled_at, b.batches, b.rows, b.duplicates, b.age_seconds, b.last_at,
       w.ready, w.scheduled, w.running, w.dead, w.lately
  from (select * from penstock.load where %(name)s::text is null or name = %(name)s
         order by id desc limit %(limit)s) as l
  join penstock.queue as q on q.id = l.queue_id
 cross join lateral (
       select count(*) as batches, coalesce(sum(rows), 0)::bigint as rows, coalesce(sum(duplicates), 0)::bigint as duplicates,
              extract(epoch from now() - min(published_at))::double precision as age_seconds, max(published_at) as last_at
         from penstock.load_batch where load_id = l.id) as b
 cross join lateral (
       select coalesce(sum(r.n), 0)::bigint as ready, coalesce(sum(s.n), 0)::bigint as scheduled,
              coalesce(sum(e.n), 0)::bigint as running, coalesce(sum(d.n), 0)::bigint as dead,
              coalesce(sum(f.n), 0)::bigint as lately
         from penstock.load_range as g
        cross join lateral (select sum(penstock.members_count(low, high, members)) as n from penstock.ready where range = g.range) as r
        cross join lateral (select sum(penstock.members_count(low, high, members)) as n from penstock.scheduled where range = g.range) as s
        cross join lateral (select sum(penstock.members_count(low, high, members)) as n from penstock.lease where range = g.range) as e
        cross join lateral (
              select count(*) as n from penstock.dead where job_id >= g.range * 1024 and job_id < (g.range + 1) * 1024) as d
        cross join lateral (
              select sum(cardinality(positions)) as n from penstock.finished
               where range = g.range and finished_at > now() - interval '1 minute') as f
        where g.load_id = l.id) as w
 order by l.id desc

-- name: pause_load
update penstock.load set is_paused = true where id = %(load)s

-- name: hold_load
select penstock.hold_load(%(load)s)

-- name: hold_loads
select penstock.hold_loads()

-- name: resume_load
select penstock.resume_load(%(load)s)

-- name: mark_load_cancelled
update penstock.load set cancelled_at = coalesce(cancelled_at, now()) where id = %(load)s

-- name: open_ranges_of_load
-- Ranges of a load of which something waits, or was claimed and may not have started. Index: load_range_of_load.
select g.range, g.size from penstock.load_range as g
 where g.load_id = %(load)s
   and (exists (select from penstock.ready where range = g.range)
        or exists (select from penstock.scheduled where range = g.range)
        or exists (select from penstock.lease where range = g.range and is_ahead))
 order by g.range limit %(limit)s

-- name: running_ranges_of_load
-- Ranges of a load of which something runs. Index: load_range_of_load.
select g.range, g.size from penstock.load_range as g
 where g.load_id = %(load)s and exists (select from penstock.lease where range = g.range)

-- name: forget_stages
select penstock.forget_stages()
