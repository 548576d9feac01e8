-- name: ready_in_partitions
-- How many jobs are ready in each of a queue's partitions, and from which range to which they lie, by the first and the last row of
-- each priority. Index: ready_in_order, one row from either end.
select p.id, coalesce(d.opened, 0) - coalesce(l.n, 0), min(least(f.range, t.range)), max(greatest(f.range, t.range))
  from unnest(%(partitions)s::int[]) as p(id)
  left join @schema@.depth as d on d.partition_id = p.id
  left join (select partition_id, sum(@schema@.members_count(low, high, members))::bigint as n
               from @schema@.lease where partition_id = any (%(partitions)s::int[]) group by partition_id) as l on l.partition_id = p.id
 cross join generate_series(0, 9) as level(priority)
 cross join lateral (select range from @schema@.ready
                      where partition_id = p.id and not is_parked and priority = level.priority order by pos limit 1) as f
 cross join lateral (select range from @schema@.ready
                      where partition_id = p.id and not is_parked and priority = level.priority order by pos desc limit 1) as t
 group by p.id, d.opened, l.n

-- name: job_pages
-- How many pages the tables have in which jobs of these ranges lie.
select coalesce(sum(pg_relation_size(to_regclass(format('@schema@.job_%%s', low)))), 0)::bigint / current_setting('block_size')::int
  from @schema@.job_table where low <= %(last)s and high > %(first)s and not is_detached

-- name: keys_of_ready
-- The keys of a queue's ready jobs, no more than so many rows of them: how many of each, and since when. Index: ready_in_order, the
-- primary key of the tables that hold jobs.
select j.key, count(*), min(r.ready_at)
  from (select r.range, r.low, r.high, r.members, r.ready_at
          from unnest(%(partitions)s::int[]) as p(id)
         cross join lateral (select range, low, high, members, ready_at from @schema@.ready
                              where partition_id = p.id and not is_parked order by priority, pos limit %(most)s) as r
         limit %(most)s) as r
 cross join lateral (select id, key from @schema@.job_stored where id >= r.range * 1024 + r.low and id < r.range * 1024 + r.high offset 0) as j
 where @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
 group by j.key

-- name: keys_of_some_ready
-- The same of those jobs that lie on some pages, chosen at random: as likely of each job, in whichever ranges the backlog lies.
-- Index: ready_of_range, for each job of these partitions that was met.
select j.key, count(*), min(r.ready_at)
  from (select id, key from @schema@.job tablesample system (least(%(percent)s::float8, 100))
         where id >= %(first)s::bigint * 1024 and id < (%(last)s::bigint + 1) * 1024 and partition_id = any (%(partitions)s::int[]) offset 0) as j
 cross join lateral (select low, high, members, ready_at, is_parked from @schema@.ready where range = j.id / 1024 offset 0) as r
 where not r.is_parked and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
 group by j.key

-- name: keys_at_work
-- Of some keys of a queue how many jobs are given out, whether the key waits for a retry, and whether it is halted. Looks at no
-- more leases and held keys than are asked for. Index: scheduled_holding, the primary key of halted.
with out as (
    select j.key, count(*) as n
      from (select range, low, high, members from @schema@.lease where partition_id = any (%(partitions)s::int[]) limit %(most)s) as l
     cross join lateral (select id, key from @schema@.job_stored
                          where id >= l.range * 1024 + l.low and id < l.range * 1024 + l.high offset 0) as j
     where @schema@.has_member(l.low, l.high, l.members, (j.id %% 1024)::int) and j.key = any (%(keys)s::bytea[])
     group by j.key
), held as (
    select distinct j.key
      from (select s.range, s.low, s.high, s.members from unnest(%(partitions)s::int[]) as p(id)
             cross join lateral (select range, low, high, members from @schema@.scheduled
                                  where partition_id = p.id and pos is not null limit %(most)s) as s limit %(most)s) as s
     cross join lateral (select id, key from @schema@.job_stored
                          where id >= s.range * 1024 + s.low and id < s.range * 1024 + s.high offset 0) as j
     where @schema@.has_member(s.low, s.high, s.members, (j.id %% 1024)::int) and j.key = any (%(keys)s::bytea[])
)
select k.key, coalesce(o.n, 0), h.key is not null,
       exists (select from @schema@.halted as t where t.queue_id = %(queue)s and t.key = k.key)
  from unnest(%(keys)s::bytea[]) as k(key)
  left join out as o on o.key = k.key
  left join held as h on h.key = k.key
