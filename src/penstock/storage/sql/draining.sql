-- name: begin_draining
-- See penstock.begin_draining. Locks: the catalogue.
select penstock.begin_draining(%(shard)s)

-- name: queues_on_shard
-- The queues that have partitions on a shard by their maps of now.
select distinct q.name from penstock.queue as q join penstock.partition as p on p.queue_id = q.id and p.is_current
 where p.shard = %(shard)s order by q.name

-- name: vacate_queue
-- See penstock.vacate_queue. Locks: the catalogue, the map's row, the queue's.
select penstock.vacate_queue(%(name)s, %(shard)s)

-- name: send_off
-- See penstock.send_off. Locks: the rows it takes, skipping those held.
select penstock.send_off(%(rows)s)

-- name: has_places_left
-- Whether places that partitions have left are to be shut here, or hold anything that has to leave. The catalogue is small.
-- Indexes by partition.
select exists (
    select from penstock.partitions_left() as l
     where l.has_moved
       and (l.shut_by is null
            or exists (select from penstock.ready where partition_id = l.id)
            or exists (select from penstock.scheduled where partition_id = l.id)
            or exists (select from penstock.blocked where partition_id = l.id)
            or exists (select from penstock.dead where partition_id = l.id)))

-- name: left_on_shard
-- See penstock.left_on_shard. Counts what there is: for a person.
select queue, kind, n from penstock.left_on_shard()

-- name: is_vacant
select penstock.is_vacant()

-- name: seal_shard
-- See penstock.seal_shard. Locks: the tables of jobs and arrivals, for a moment.
select penstock.seal_shard()

-- name: queues_not_carried
-- The queues of which idempotency keys may not be at home.
select distinct q.name from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id and m.epoch < q.epoch
 where not m.is_carried order by q.name

-- name: sent_to_shard
-- How many jobs are on their way to a shard from here. Index: outbox_by_shard.
select count(*) from penstock.outbox where shard = %(shard)s

-- name: parents_on_shard
-- The jobs of a shard that children here wait for. Index: dependency_elsewhere.
select distinct d.parent_id from penstock.dependency as d
 where d.is_elsewhere and penstock.shard_of(d.parent_id) = %(shard)s
   and not exists (select from penstock.parent_end as e where e.job_id = d.parent_id)

-- name: parents_not_forwarded
-- Of these jobs those that did not leave this shard.
select count(*) from unnest(%(ids)s::bigint[]) as g(id) where not exists (select from penstock.forward as f where f.job_id = g.id)

-- name: loads_decided
-- See penstock.loads_decided. Locks: decisions about loads.
select penstock.loads_decided()

-- name: take_loads
select penstock.take_loads(%(given)s::json)

-- name: end_draining
-- See penstock.end_draining. Locks: the catalogue.
select penstock.end_draining(%(shard)s)
