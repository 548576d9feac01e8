-- name: cancel_in_ranges
-- See penstock.cancel_in_range; range after range, ascending.
select g.range, c.cancelled::text, c.asked::text
  from unnest(%(ranges)s::bigint[], %(masks)s::bit(1024)[]) as g(range, mask)
 cross join lateral penstock.cancel_in_range(g.range, g.mask) as c

-- name: retry_dead
-- Dead letters become ready again, behind what is ready already; those of one range that were on the same attempt go
-- together. The row's lock is the fence, the attempts made stay in `failure`. Locks: their rows by id.
with gone as (
    delete from penstock.dead where job_id = any (array(
        select job_id from penstock.dead where job_id = any (%(ids)s::bigint[]) order by job_id for update))
    returning job_id, partition_id, task, attempt
), stored as (
    select distinct on (id) id, priority from (
        select id, priority from penstock.job where id = any (%(ids)s::bigint[])
        union all
        select id, priority from penstock.job_kept where id = any (%(ids)s::bigint[])) as j
), again as (
    insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, task)
    select partition_id, priority, penstock.draw_range(), range, low, high, members, attempt, task from (
        select g.partition_id, j.priority, g.job_id / 1024 as range, min(g.job_id %% 1024)::smallint as low,
               (max(g.job_id %% 1024) + 1)::smallint as high,
               case when count(*) <= max(g.job_id %% 1024) - min(g.job_id %% 1024)
                    then bit_or(penstock.single((g.job_id %% 1024)::int)) end as members,
               least(g.attempt + 1, 32767)::smallint as attempt, g.task
          from gone as g join stored as j on j.id = g.job_id
         group by g.partition_id, j.priority, g.job_id / 1024, g.attempt, g.task
         order by g.job_id / 1024) as joined
    returning partition_id
), counted as (
    insert into penstock.tally (partition_id, dead, opened)
    select partition_id, -count(*), count(*) from gone group by partition_id
), woken as (
    select count(penstock.wake(queue_id)) as n from (
        select distinct p.queue_id from again as a join penstock.partition as p on p.id = a.partition_id) as q
)
select gone.job_id from gone, woken

-- name: reschedule_job
select penstock.reschedule_job(%(id)s, coalesce(%(run_at)s::timestamptz, now()))

-- name: make_scheduled_ready
-- See penstock.reschedule_job; one after the other, ascending.
select count(penstock.reschedule_job(id, now()))
  from (select id from unnest(%(ids)s::bigint[]) as id order by id) as given

-- name: purge_ready
select place, jobs, ranges from penstock.purge_ready(%(partition)s, %(priority)s, %(from)s, %(until)s, %(limit)s)

-- name: purge_parked
select place, jobs, ranges from penstock.purge_parked(%(partition)s, %(from)s, %(until)s, %(limit)s)

-- name: purge_scheduled
select place, jobs, ranges from penstock.purge_scheduled(%(partition)s, %(from)s, %(until)s, %(limit)s)

-- name: purge_blocked
select place, jobs, ranges from penstock.purge_blocked(%(partition)s, %(from)s, %(until)s, %(limit)s)

-- name: bury_dead
select penstock.bury_dead(%(ids)s::bigint[])

-- name: dead_before
-- Dead letters that have lain longer than that. Index: dead_by_time.
select job_id from penstock.dead where failed_at < now() - make_interval(secs => %(age_seconds)s)
 order by failed_at limit %(limit)s
