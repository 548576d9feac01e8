-- name: attention_facts
-- What may need attention beyond what `system_figures` tells: by partition, what had come, ended and died at the oldest note
-- of the last minutes and of the last hour; the newest dead letters by partition; paused loads of which something waits;
-- crons that are paused, or whose last job is a dead letter; lists as JSON. A thousand dead letters are looked at, twenty paused
-- loads, and of each of these the hundred ranges that came last. Index: the primary keys of minute and dead, dead_by_time,
-- load_paused, load_range_of_load, scheduled_of_range. `cron` and the catalogue are read as a whole.
with lately as (
    select min(minute) as minute from @schema@.minute where minute >= now() - interval '6 minutes' and noted_at <= now() - interval '30 seconds'
), hour as (
    select min(minute) as minute from @schema@.minute where minute >= now() - interval '1 hour'
), letter as (
    select partition_id, failed_at from @schema@.dead where failed_at > now() - interval '1 hour'
     order by failed_at desc, job_id desc limit 1000
)
select now(),
       coalesce((select json_agg(json_build_array(p.name, extract(epoch from now() - m.noted_at)::double precision, m.enqueued,
                   m.completed + m.failed + m.cancelled + m.discarded + m.expired))
                   from @schema@.minute as m join @schema@.partition as p on p.id = m.partition_id
                  where m.minute = (select minute from lately)), '[]')::text,
       coalesce((select json_agg(json_build_array(p.name, m.failed))
                   from @schema@.minute as m join @schema@.partition as p on p.id = m.partition_id
                  where m.minute = (select minute from hour)), '[]')::text,
       coalesce((select json_agg(json_build_array(p.name, l.letters, extract(epoch from now() - l.last_at)::double precision))
                   from (select partition_id, count(*) as letters, max(failed_at) as last_at from letter group by partition_id) as l
                   join @schema@.partition as p on p.id = l.partition_id), '[]')::text,
       coalesce((select json_agg(json_build_array(l.name, q.name) order by l.id desc)
                   from (select id, name, queue_id from @schema@.load where is_paused and cancelled_at is null order by id desc limit 20) as l
                   join @schema@.queue as q on q.id = l.queue_id
                  where exists (
                        select from (select range from @schema@.load_range where load_id = l.id order by range desc limit 100) as g
                         cross join lateral (
                               select from @schema@.scheduled where range = g.range and due_at >= @schema@.paused_from() limit 1) as s)), '[]')::text,
       coalesce((select json_agg(json_build_array(c.name, q.name, c.task, c.is_paused, d.job_id,
                   extract(epoch from now() - d.failed_at)::double precision) order by c.name)
                   from @schema@.cron as c join @schema@.queue as q on q.id = c.queue_id
                   left join @schema@.dead as d on d.job_id = c.last_job
                  where not c.is_leaving and q.deleted_at is null and (c.is_paused or d.job_id is not null)), '[]')::text
