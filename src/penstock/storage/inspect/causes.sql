-- name: most_frequent_causes
-- The causes that most dead letters have. The tally is short, and may change the place of as many as it names. Locks: none.
-- Index: cause_by_dead, backwards, and the primary key.
with news as materialized (
    select cause as id, sum(dead) as dead from @schema@.cause_tally group by cause
), found as (
    (select id from @schema@.cause where dead > 0 order by dead desc limit %(limit)s + (select count(*) from news))
    union
    select id from news
)
select f.id, (coalesce(c.dead, 0) + coalesce(n.dead, 0))::bigint as dead
  from found as f
  left join lateral (select dead from @schema@.cause where id = f.id limit 1) as c on true
  left join news as n on n.id = f.id
 where coalesce(c.dead, 0) + coalesce(n.dead, 0) > 0
 order by dead desc, f.id limit %(limit)s

-- name: most_frequent_causes_of_queues
-- The same of some queues. Index: cause_of_queue_by_dead, backwards, and the primary key.
with news as materialized (
    select cause as id, sum(dead) as dead, max(queue_id) as queue_id from @schema@.cause_tally group by cause
), found as (
    select c.id from unnest(%(queues)s::int[]) as q(id)
     cross join lateral (
           select id from @schema@.cause
            where queue_id = q.id and dead > 0 order by dead desc limit %(limit)s + (select count(*) from news)) as c
    union
    select id from news
)
select f.id, (coalesce(c.dead, 0) + coalesce(n.dead, 0))::bigint as dead
  from found as f
  left join lateral (select queue_id, dead from @schema@.cause where id = f.id limit 1) as c on true
  left join news as n on n.id = f.id
 where coalesce(c.dead, 0) + coalesce(n.dead, 0) > 0 and coalesce(c.queue_id, n.queue_id) = any (%(queues)s::int[])
 order by dead desc, f.id limit %(limit)s

-- name: read_causes
-- What is known of causes that dead letters have here, cause by cause. Locks: none. Index: the primary keys,
-- dead_of_cause_by_time from both ends.
with news as materialized (
    select cause as id, sum(dead) as dead, max(queue_id) as queue_id, max(task) as task, max(shape) as shape
      from @schema@.cause_tally group by cause
)
select g.id, q.name, coalesce(c.task, n.task), coalesce(c.shape, n.shape),
       (coalesce(c.dead, 0) + coalesce(n.dead, 0))::bigint, first.failed_at, last.failed_at, last.job_id
  from unnest(%(ids)s::bigint[]) as g(id)
  left join lateral (select queue_id, task, shape, dead from @schema@.cause where id = g.id limit 1) as c on true
  left join news as n on n.id = g.id
  join @schema@.queue as q on q.id = coalesce(c.queue_id, n.queue_id)
 cross join lateral (select failed_at from @schema@.dead where cause = g.id order by failed_at, job_id limit 1) as first
 cross join lateral (
       select failed_at, job_id from @schema@.dead where cause = g.id order by failed_at desc, job_id desc limit 1) as last

-- name: read_trends
-- How many attempts failed of causes in the last day: by hours ago, and those of the last hour also by five minutes ago;
-- `step` tells which. Locks: none. Index: cause_period_of_cause.
with counted as (
    select cause, began_at, failed from @schema@.cause_period
     where cause = any (%(ids)s::bigint[]) and began_at > @schema@.period_of(now()) - interval '1 day'
    union all
    select cause, @schema@.period_of(at), failed from @schema@.cause_tally
     where cause = any (%(ids)s::bigint[]) and failed > 0
), aged as (
    select cause, failed, (extract(epoch from @schema@.period_of(now()) - began_at) / 300)::int as ago from counted
)
select cause, 'hour' as step, ago / 12 as ago, sum(failed)::bigint from aged group by 1, 3
union all
select cause, 'period', ago, sum(failed)::bigint from aged where ago < 12 group by 1, 3

-- name: period_of_now
-- The five minutes that it is. Locks: none.
select @schema@.period_of(now())

-- name: failures_of_queue
-- How many attempts of a queue failed of each cause in each five minutes since an instant; those of causes that are not told
-- apart have 0 as theirs. Locks: none. Index: the primary key.
select cause, began_at, sum(failed)::bigint from (
    select cause, began_at, failed from @schema@.cause_period where queue_id = %(queue)s and began_at >= %(since)s
    union all
    select cause, @schema@.period_of(at), failed from @schema@.cause_tally
     where queue_id = %(queue)s and failed > 0 and @schema@.period_of(at) >= %(since)s) as counted
 group by cause, began_at

-- name: names_of_causes
-- The task and the shape of causes. Locks: none. Index: the primary key.
select id, task, shape from @schema@.cause where id = any (%(ids)s::bigint[])
union
select cause, task, shape from @schema@.cause_tally where cause = any (%(ids)s::bigint[]) and shape is not null
