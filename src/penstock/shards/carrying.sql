-- name: outbox_shards
-- The shards that something is to be carried to. Index: outbox_by_shard, by one jump each.
with recursive found as (
    (select shard from @schema@.outbox order by shard limit 1)
    union all
    select (select o.shard from @schema@.outbox as o where o.shard > f.shard order by o.shard limit 1)
      from found as f where f.shard is not null
)
select shard from found where shard is not null

-- name: begin_carrying
-- Lock what is to be carried from here until the transaction ends; false where somebody has. See
-- @schema@.begin_carrying.
select @schema@.begin_carrying()

-- name: sent_next
-- What is to be carried to a shard next. Index: outbox_by_shard.
select id from @schema@.outbox where shard = %(shard)s order by id limit %(limit)s

-- name: arrived_for_good
-- See @schema@.arrived_for_good. Index: the primary key of arrival.
select @schema@.arrived_for_good(%(from)s, %(ids)s::bigint[])

-- name: redirect
-- See @schema@.redirect.
select @schema@.redirect(%(ids)s::bigint[])

-- name: set_aside_unsent
-- See @schema@.set_aside_unsent.
select @schema@.set_aside_unsent(%(shard)s, %(limit)s)

-- name: read_outbox
-- See @schema@.read_outbox. Index: outbox_by_shard.
select @schema@.read_outbox(%(shard)s, %(limit)s)

-- name: read_clock
-- The server's time now, not when the transaction began.
select clock_timestamp()

-- name: take_arrivals
-- See @schema@.take_arrivals. Locks: arrivals, the queues' maps (shared).
select @schema@.take_arrivals(%(from)s, %(as_of)s, %(jobs)s::json)

-- name: depart
-- See @schema@.depart.
select @schema@.depart(%(ids)s::bigint[])

-- name: ask_elsewhere
-- See @schema@.ask_elsewhere. Index: the primary key of dependency.
select @schema@.ask_elsewhere()

-- name: old_arrivals
-- Index: arrival_by_time.
select shard, array_agg(outbox_id)
  from (select shard, outbox_id from @schema@.arrival where at < now() - interval '1 day' order by at limit %(limit)s) as a
 group by shard

-- name: still_in_outbox
-- Which of these are still to be carried. Index: the primary key.
select id from @schema@.outbox where id = any (%(ids)s::bigint[])

-- name: forget_arrivals
-- Forget what came from a shard that has let it go. Index: the primary key.
delete from @schema@.arrival where shard = %(shard)s and outbox_id = any (%(ids)s::bigint[])

-- name: old_forwards
-- Index: forward_by_time.
select shard, array_agg(job_id)
  from (select shard, job_id from @schema@.forward where at < now() - interval '1 day' order by at limit %(limit)s) as f
 group by shard

-- name: jobs_that_exist
-- Which of these jobs are anywhere still. See @schema@.exists_anywhere.
select id from unnest(%(ids)s::bigint[]) as id where @schema@.exists_anywhere(id)

-- name: renew_forwards
-- Those that are still somewhere are asked for again in a day.
update @schema@.forward set at = now() where job_id = any (%(ids)s::bigint[])

-- name: forget_forwards
-- Forget where jobs went that are nowhere any more. Index: the primary key.
delete from @schema@.forward where job_id = any (%(ids)s::bigint[])
