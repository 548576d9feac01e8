-- name: uncarried_queues
-- Queues of which idempotency keys may lie where an earlier map sent them. A row a queue: few.
select q.id, q.name, q.epoch, array_agg(m.epoch order by m.epoch)
  from @schema@.queue as q join @schema@.queue_map as m on m.queue_id = q.id
 where m.epoch < q.epoch and not m.is_carried
   and not exists (select from @schema@.queue_map as a where a.queue_id = q.id and a.state = 'announced')
 group by q.id order by q.id

-- name: is_closed_here
-- See @schema@.are_closed: of one map. Locks: rows of old maps, skipping those that are locked.
select @schema@.are_closed(array[%(queue)s::int], array[%(epoch)s::int])

-- name: strayed_keys
-- See @schema@.strayed_keys. Index: the primary key of dedup.
select is_current, homes, keys, job_ids, last_key
  from @schema@.strayed_keys(%(queue)s, %(epoch)s, %(after)s, %(limit)s)

-- name: take_in_keys
-- See @schema@.take_in_keys. Waits for the same keys in flight elsewhere. Locks: the map, shared.
select @schema@.take_in_keys(%(queue)s, %(epoch)s, %(keys)s::text[], %(job_ids)s::bigint[])

-- name: let_go_keys
-- See @schema@.let_go_keys. Index: the primary key of dedup. Locks: the map, shared.
select @schema@.let_go_keys(%(queue)s, %(epoch)s, %(keys)s::text[])

-- name: note_carried
-- See @schema@.note_carried. Locks: the catalogue.
select @schema@.note_carried(%(queue)s, %(epoch)s)

-- name: ask_former_home
-- The jobs that hold these keys here; of those that are unique while they wait, if they do. Index: the primary key of dedup.
select idempotency_key, job_id from @schema@.dedup
 where queue_id = %(queue)s and idempotency_key = any (%(keys)s::text[])
   and (not is_unique or @schema@.waits_unstarted(job_id))

-- name: carried_keys
-- The next jobs of other shards for which keys are here. Index: dedup_carried.
select job_id from @schema@.dedup where is_carried and job_id > %(after)s order by job_id limit %(limit)s

-- name: jobs_forgotten
-- Of these jobs, those of which nothing is left on this shard. See @schema@.jobs_forgotten.
select @schema@.jobs_forgotten(%(ids)s::bigint[])

-- name: let_go_keys_of_jobs
-- Index: dedup_carried.
delete from @schema@.dedup where is_carried and job_id = any (%(ids)s::bigint[])
