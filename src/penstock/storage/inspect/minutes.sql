-- name: read_minutes
-- The figures of partitions, those of a queue together: a row for each queue and each of the last minutes that was noted,
-- the oldest first. What came and ended since the minute before is null where none was noted before. Locks: none. Index: the
-- primary key of minute, twice.
select p.queue_id, m.minute, sum(m.waiting)::bigint, sum(m.running)::bigint, sum(m.scheduled)::bigint, sum(m.blocked)::bigint,
       sum(m.dead)::bigint, max(m.oldest_wait_seconds), sum(m.enqueued - b.enqueued)::bigint,
       sum(m.completed - b.completed)::bigint, sum(m.failed - b.failed)::bigint, sum(m.cancelled - b.cancelled)::bigint,
       sum(m.discarded - b.discarded)::bigint, sum(m.expired - b.expired)::bigint,
       max(extract(epoch from m.noted_at - b.noted_at))::double precision
  from @schema@.minute as m
  join @schema@.partition as p on p.id = m.partition_id
  left join @schema@.minute as b on b.minute = m.previous and b.partition_id = m.partition_id
 where m.minute > now() - make_interval(mins => %(minutes)s) and m.partition_id = any (%(partitions)s::int[])
 group by p.queue_id, m.minute order by p.queue_id, m.minute

-- name: read_histograms
-- How many jobs of queues waited and ran for how long in each of the last minutes, several rows of a minute that has not been
-- added up. Locks: none. Index: minute_histogram_by_minute.
select queue_id, minute, waits, runs from @schema@.minute_histogram
 where minute > now() - make_interval(mins => %(minutes)s) and queue_id = any (%(queues)s::int[])
