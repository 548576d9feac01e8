-- name: due_jobs
-- How many scheduled jobs are due within each span of time, of all partitions or of these, and whether these are all. Of each span so many rows
-- at most are looked at, those first that are due first. What waits for a paused load is not due. Locks: none. Index: scheduled_by_due_time.
with span(number, since, until) as (
    values (0, '-infinity'::timestamptz, now() + interval '1 minute'),
           (1, now() + interval '1 minute', now() + interval '10 minutes'),
           (2, now() + interval '10 minutes', now() + interval '1 hour'),
           (3, now() + interval '1 hour', now() + interval '6 hours'),
           (4, now() + interval '6 hours', now() + interval '1 day'),
           (5, now() + interval '1 day', now() + interval '7 days'),
           (6, now() + interval '7 days', @schema@.paused_from())
)
select s.number, case when s.number < 6 then s.until end, coalesce(f.jobs, 0)::bigint, f.looked_at <= %(most)s
  from span as s
 cross join lateral (
       select count(*) as looked_at,
              sum(@schema@.members_count(d.low, d.high, d.members))
                  filter (where %(partitions)s::int[] is null or d.partition_id = any (%(partitions)s::int[])) as jobs
         from (select partition_id, low, high, members from @schema@.scheduled
                where due_at >= s.since and due_at < s.until order by due_at limit %(most)s + 1) as d) as f
 order by s.number
