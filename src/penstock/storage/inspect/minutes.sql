-- name: read_minutes
-- The figures of partitions together, a row for each of the last minutes that was noted, the oldest first. What came and
-- ended since the minute before is null where none was noted before. Locks: none. Index: the primary key of minute, twice.
select m.minute, sum(m.waiting)::bigint, sum(m.running)::bigint, sum(m.scheduled)::bigint, sum(m.blocked)::bigint,
       sum(m.dead)::bigint, max(m.oldest_wait_seconds), sum(m.enqueued - b.enqueued)::bigint,
       sum(m.completed - b.completed)::bigint, sum(m.failed - b.failed)::bigint, sum(m.cancelled - b.cancelled)::bigint,
       sum(m.discarded - b.discarded)::bigint, sum(m.expired - b.expired)::bigint,
       max(extract(epoch from m.noted_at - b.noted_at))::double precision
  from @schema@.minute as m
  left join @schema@.minute as b on b.minute = m.previous and b.partition_id = m.partition_id
 where m.minute > now() - make_interval(mins => %(minutes)s) and m.partition_id = any (%(partitions)s::int[])
 group by m.minute order by m.minute

-- name: read_histograms
-- How many jobs of a queue waited and ran for how long in each of the last minutes, several rows of a minute that has not been
-- added up. Locks: none. Index: minute_histogram_by_minute.
select minute, waits, runs from @schema@.minute_histogram
 where minute > now() - make_interval(mins => %(minutes)s) and queue_id = %(queue)s
