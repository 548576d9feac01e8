-- name: read_stats
-- Who owns partitions and since which change of owner, how many permits they have, and their figures, folded plus unfolded, and what is under leases, in one snapshot. Reads `total`, `tally`
-- (upkeep folds it every few seconds) and `lease` (as many rows as work is given out): nothing that grows with a backlog.
select p.id, (select w.name from @schema@.worker as w where w.id = p.owner_id), p.owner_epoch, p.permits, coalesce(d.opened, 0) - coalesce(l.n, 0), coalesce(l.n, 0), coalesce(d.scheduled, 0), coalesce(d.blocked, 0),
       coalesce(d.dead, 0), coalesce(d.enqueued, 0), coalesce(d.completed, 0), coalesce(d.failed, 0),
       coalesce(d.cancelled, 0), coalesce(d.discarded, 0), coalesce(d.expired, 0)
  from @schema@.partition as p
  left join @schema@.depth as d on d.partition_id = p.id
  left join (select partition_id, sum(@schema@.members_count(low, high, members))::bigint as n
               from @schema@.lease group by partition_id) as l on l.partition_id = p.id
 where p.id = any (%(partitions)s::int[])

-- name: ready_heads
-- The first job of each priority of each partition, and of what is out of order. Index: ready_in_order and
-- ready_out_of_order, one row of each.
select p.id, r.range * 1024 + coalesce(nullif(position(B'1' in r.members), 0) - 1, r.low)
  from unnest(%(partitions)s::int[]) as p(id) cross join generate_series(0, 9) as level(priority)
 cross join lateral (
       select range, low, members from @schema@.ready
        where partition_id = p.id and not is_parked and priority = level.priority order by pos limit 1) as r
union all
select p.id, r.range * 1024 + coalesce(nullif(position(B'1' in r.members), 0) - 1, r.low)
  from unnest(%(partitions)s::int[]) as p(id)
 cross join lateral (
       select range, low, members from @schema@.ready
        where partition_id = p.id and (pos <> range or is_parked) order by range limit 1) as r

-- name: enqueued_ats
-- When these jobs were enqueued. Index: the primary keys.
select id, enqueued_at from @schema@.job where id = any (%(ids)s::bigint[])
union all
select id, enqueued_at from @schema@.job_kept where id = any (%(ids)s::bigint[])
