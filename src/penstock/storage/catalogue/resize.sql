-- name: resize_queue
-- See @schema@.resize. Locks: the row of the queue's map, then the queue's.
select @schema@.resize(%(name)s, %(partitions)s)

-- name: close_maps
-- See @schema@.close_maps. Locks: rows of old maps, skipping those that are locked.
select @schema@.close_maps()

-- name: drain_maps
-- See @schema@.drain_maps. Locks: rows of closed maps, skipping those that are locked.
select @schema@.drain_maps()

-- name: list_rest
-- See @schema@.list_rest. Locks: rows of closed maps, skipping those that are locked.
select @schema@.list_rest(%(jobs)s, %(keys)s)

-- name: has_closed_maps
-- Whether anything is left to drain. A row a resize: few.
select exists (select from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
                where m.state = 'replaced' and h.state = 'closed')

-- name: is_drained
-- Whether nothing is left of the earlier maps of a queue.
select not exists (select from @schema@.queue_map where queue_id = %(queue)s and state = 'replaced')

-- name: draining_partitions
-- Partitions with jobs that an earlier map sent there, or that a plain queue does not use any more, and how many.
-- Indexes: ready_of_epoch, scheduled_holding.
select p.name, n.jobs
  from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
 cross join lateral (
       select sum(@schema@.members_count(o.low, o.high, o.members))::bigint as jobs from (
           select low, high, members from @schema@.ready where partition_id = p.id and epoch < q.epoch
           union all
           select low, high, members from @schema@.lease where partition_id = p.id and epoch < q.epoch
           union all
           select low, high, members from @schema@.scheduled
            where partition_id = p.id and epoch < q.epoch and pos is not null) as o
        where q.is_owned
       having count(*) > 0
       union all
       select opened + scheduled + blocked from @schema@.depth
        where partition_id = p.id and not q.is_owned and p.state <> 'current') as n
 where q.id = %(queue)s and n.jobs > 0
 order by p.number
