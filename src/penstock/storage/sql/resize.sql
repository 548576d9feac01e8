-- name: resize_queue
-- See @schema@.resize. Locks: the row of the queue's map, then the queue's.
select @schema@.resize(%(name)s, %(partitions)s)

-- name: close_maps
-- See @schema@.close_maps. Locks: rows of old maps, skipping those held.
select @schema@.close_maps()

-- name: drain_maps
-- See @schema@.drain_maps. Locks: rows of closed maps, skipping those held.
select @schema@.drain_maps()

-- name: list_rest
-- See @schema@.list_rest. Locks: rows of closed maps, skipping those held.
select @schema@.list_rest(%(jobs)s, %(keys)s)

-- name: has_closed_maps
-- Whether anything is left to drain. A row a resize: few.
select exists (select from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
                where m.state = 'replaced' and h.state = 'closed')

-- name: open_maps
-- See @schema@.open_maps: one look. Index: ready_of_epoch.
select epoch, partition_ids, open_ids, held_keys from @schema@.open_maps(%(queue)s)

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

-- name: blocked_keys
-- The keys of a queue that wait for the retry of a job or for a person, one row each, and whether that job can be
-- retried. Index: scheduled_holding.
select distinct on (b.key) b.key, b.job_id, b.since, b.due_at, b.can_retry
  from (select j.key, j.id as job_id, s.due_at, true as can_retry,
               coalesce((select max(f.at) from @schema@.failure as f where f.job_id = j.id), j.enqueued_at) as since
          from @schema@.partition as p
          join @schema@.scheduled as s on s.partition_id = p.id and s.pos is not null
         cross join lateral unnest(@schema@.positions(s.low, s.high, s.members)) as m
         cross join lateral (select id, key, enqueued_at from @schema@.job_stored where id = s.range * 1024 + m limit 1) as j
         where p.queue_id = %(queue)s and j.key is not null
        union all
        select h.key, h.job_id, null, exists (select from @schema@.dead as d where d.job_id = h.job_id), h.since
          from @schema@.halted as h where h.queue_id = %(queue)s) as b
 order by b.key, b.due_at desc nulls first

-- name: count_behind
-- How many jobs of these keys are ready. Looks at every range of the queue: for a person. Index: ready_in_order.
select j.key, count(distinct j.id)
  from @schema@.partition as p join @schema@.ready as r on r.partition_id = p.id and not r.is_parked
 cross join lateral (
       select id, key from @schema@.job_stored
        where id >= r.range * 1024 + r.low and id < r.range * 1024 + r.high and key = any (%(keys)s::bytea[]) offset 0) as j
 where p.queue_id = %(queue)s and @schema@.has_member(r.low, r.high, r.members, (j.id %% 1024)::int)
 group by j.key

-- name: release_key
-- See @schema@.release_key. Locks: the key's row in halted.
select @schema@.release_key(%(queue)s, %(key)s)
