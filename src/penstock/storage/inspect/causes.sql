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
-- How many attempts failed of causes in the last day, by hours ago; those of the last hour by five minutes ago, too. Locks:
-- none. Index: cause_period_of_cause.
with counted as (
    select cause, began_at, failed from @schema@.cause_period
     where cause = any (%(ids)s::bigint[]) and began_at > @schema@.period_of(now()) - interval '1 day'
    union all
    select cause, @schema@.period_of(at), failed from @schema@.cause_tally
     where cause = any (%(ids)s::bigint[]) and failed > 0
), aged as (
    select cause, failed, (date_part('epoch', p.began_at - c.began_at) / 300)::int as ago
      from counted as c cross join (select @schema@.period_of(now()) as began_at) as p
)
select cause, ago / 12 as hours, case when ago < 12 then ago end as periods, sum(failed)::bigint from aged group by 1, 2, 3

-- name: period_of_now
-- The five minutes that it is. Locks: none.
select @schema@.period_of(now())

-- name: most_failed_causes
-- The causes of which most attempts of a queue failed since an instant, but for those that are not told apart. Locks: none.
-- Index: the primary keys.
with counted as (
    select cause, sum(failed)::bigint as failed from (
        select cause, failed from @schema@.cause_period where queue_id = %(queue)s and began_at >= %(since)s and cause <> 0
        union all
        select cause, failed from @schema@.cause_tally
         where queue_id = %(queue)s and failed > 0 and @schema@.period_of(at) >= %(since)s) as each
     group by cause order by failed desc, cause limit %(limit)s
)
select m.cause, m.failed, n.task, n.shape
  from counted as m
 cross join lateral (
       select task, shape from @schema@.cause where id = m.cause
       union all
       select task, shape from @schema@.cause_tally where cause = m.cause and shape is not null limit 1) as n

-- name: failures_of_queue
-- How many attempts of a queue failed in each five minutes since an instant, of some causes, and with 0 as the cause of all
-- others. Locks: none. Index: the primary key.
select case when cause = any (%(ids)s::bigint[]) then cause else 0 end as cause, began_at, sum(failed)::bigint from (
    select cause, began_at, failed from @schema@.cause_period where queue_id = %(queue)s and began_at >= %(since)s
    union all
    select cause, @schema@.period_of(at), failed from @schema@.cause_tally
     where queue_id = %(queue)s and failed > 0 and @schema@.period_of(at) >= %(since)s) as counted
 group by 1, 2
