-- name: begin_draining
-- See @schema@.begin_draining. Locks: the catalogue.
select @schema@.begin_draining(%(shard)s)

-- name: queues_on_shard
-- The queues that have partitions on a shard by their maps of now.
select distinct q.name from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id and p.state = 'current'
 where p.shard = %(shard)s order by q.name

-- name: vacate_queue
-- See @schema@.vacate_queue. Locks: the catalogue, the map's row, the queue's.
select @schema@.vacate_queue(%(name)s, %(shard)s)

-- name: rest_on_shard
-- See @schema@.rest_on_shard. Counts what there is: for a person.
select queue, kind, n from @schema@.rest_on_shard()

-- name: is_vacant
-- Whether nothing is left on this shard. See @schema@.is_vacant.
select @schema@.is_vacant()

-- name: end_writes
-- See @schema@.end_writes. Locks: the tables of jobs and arrivals, for a moment.
select @schema@.end_writes()

-- name: queues_not_carried
-- The queues of which idempotency keys may not be at home.
select distinct q.name from @schema@.queue as q join @schema@.queue_map as m on m.queue_id = q.id and m.epoch < q.epoch
 where not m.is_carried order by q.name

-- name: sent_to_shard
-- How many jobs are on their way to a shard from here. Index: outbox_by_shard.
select count(*) from @schema@.outbox where shard = %(shard)s

-- name: parents_on_shard
-- The jobs of a shard that children here wait for, or may wait for again. Index: dependency_elsewhere.
select distinct d.parent_id from @schema@.dependency as d
 where d.is_elsewhere and @schema@.shard_of(d.parent_id) = %(shard)s
   and not exists (select from @schema@.parent_end as e where e.job_id = d.parent_id and e.is_final)

-- name: parents_not_forwarded
-- Of these jobs those that did not leave this shard.
select count(*) from unnest(%(ids)s::bigint[]) as g(id) where not exists (select from @schema@.forward as f where f.job_id = g.id)

-- name: loads_decided
-- See @schema@.loads_decided. Locks: decisions about loads.
select @schema@.loads_decided()

-- name: take_loads
-- Take over what a drained shard decided about loads. See @schema@.take_loads.
select @schema@.take_loads(%(given)s::json)

-- name: end_draining
-- See @schema@.end_draining. Locks: the catalogue.
select @schema@.end_draining(%(shard)s)
