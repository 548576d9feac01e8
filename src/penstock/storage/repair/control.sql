-- name: cancel_in_ranges
-- See @schema@.cancel_in_range; range after range, ascending.
select g.range, c.cancelled::text, c.asked::text
  from unnest(%(ranges)s::bigint[], %(members)s::bit(1024)[]) as g(range, members)
 cross join lateral @schema@.cancel_in_range(g.range, g.members, %(reason)s, %(asks)s) as c

-- name: retry_dead
-- See @schema@.retry_dead. Locks: the dead letters by id, then maps of their queues, shared.
select @schema@.retry_dead(%(ids)s::bigint[])

-- name: retry_dead_edited
-- See @schema@.retry_dead_edited. Locks: the dead letter, its table of jobs, its job, then a map of its queue, shared.
select @schema@.retry_dead_edited(%(id)s, %(args)s::json, %(by)s)

-- name: reschedule_job
-- Give a waiting job another time to run; null: now. See @schema@.reschedule_job.
select @schema@.reschedule_job(%(id)s, %(run_at)s::timestamptz)

-- name: let_back
-- See @schema@.let_back. Locks: the job's ready row, its queue's map (shared). Index: ready_of_range.
select @schema@.let_back(%(id)s)

-- name: make_scheduled_ready
-- See @schema@.reschedule_job; one after the other, ascending.
select count(@schema@.reschedule_job(id, null))
  from (select id from unnest(%(ids)s::bigint[]) as id order by id) as given

-- name: purge_ready
-- Cancel ready jobs of a partition, a stretch at a time; where to go on. See @schema@.purge_ready.
select continue_at, jobs, ranges from @schema@.purge_ready(%(partition)s, %(priority)s, %(from)s, %(until)s, %(limit)s, %(reason)s)

-- name: purge_parked
-- The same for jobs whose task no worker has. See @schema@.purge_parked.
select continue_at, jobs, ranges from @schema@.purge_parked(%(partition)s, %(from)s, %(until)s, %(limit)s, %(reason)s)

-- name: purge_scheduled
-- The same for jobs that are due later. See @schema@.purge_scheduled.
select continue_at, jobs, ranges from @schema@.purge_scheduled(%(partition)s, %(from)s, %(until)s, %(limit)s, %(reason)s)

-- name: purge_blocked
-- The same for jobs that wait for others. See @schema@.purge_blocked.
select continue_at, jobs, ranges from @schema@.purge_blocked(%(partition)s, %(from)s, %(until)s, %(limit)s, %(reason)s)

-- name: bury_dead
-- Dead letters become history: failed, at the time they failed. See @schema@.bury_dead.
select @schema@.bury_dead(%(ids)s::bigint[])

-- name: release_key
-- See @schema@.release_key. Locks: the key's row in halted, then those of idle_partition, by id.
select @schema@.release_key(%(queue)s, %(key)s)
