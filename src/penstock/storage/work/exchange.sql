-- name: lease_chosen
-- See @schema@.lease_chosen. Locks: rows of partitions for share, then ready rows by range. Index: ready_of_range.
select id, partition_id, priority, pos, range, low, high, members::text, attempt, rescues, is_ahead, task,
       extract(epoch from now() - ready_at)::double precision, batch
  from @schema@.lease_chosen(%(owner)s, %(holder)s, %(token)s, %(server)s, %(partitions)s::int[],
                             %(owner_epochs)s::bigint[], %(counts)s::int[], %(ranges)s::bigint[], %(members)s::bit(1024)[],
                             %(aheads)s::boolean[], %(batches)s::bigint[])

-- name: turn_of_one
-- See @schema@.turn_of_one. Locks: the lease, the partition's row for share, the ready row. Index: ready_of_range.
select lease_id, its_priority, its_pos, its_attempt, its_rescues, its_task,
       extract(epoch from now() - its_ready_at)::double precision, children
  from @schema@.turn_of_one(%(worker)s, %(name)s, %(lease)s, %(lease_token)s, %(ended)s, %(age)s, %(run)s, %(result)s,
                            %(token)s, %(server)s, %(partition)s, %(owner_epoch)s, %(job)s, %(is_ahead)s)

-- name: claim
-- See @schema@.claim. Locks: gates, then ready rows in order, skipping those that are locked. Index: ready_in_order. A
-- job that is alone in its lease comes with it: who waits for single jobs is spared a second question.
select l.id, l.partition_id, l.priority, l.pos, l.range, l.low, l.high, l.members::text, l.attempt, l.rescues, l.is_ahead,
       l.task, extract(epoch from now() - l.ready_at)::double precision, l.batch, j.id, j.args::text, j.key, j.attributes::text
  from @schema@.claim(%(worker)s, %(token)s, %(firsts)s::int[], %(lasts)s::int[], %(slots)s, %(ahead)s, %(has_suspect)s,
                      %(freed)s::int[], %(caps)s::jsonb, %(batch_sizes)s::jsonb, %(started)s::int[], %(starts)s::bigint[]) as l
  left join lateral (
       select id, args, key, attributes from @schema@.job
        where id = l.range * 1024 + l.low and l.high - l.low = 1 offset 0) as j on true

-- name: claim_unread
-- The same without the job, for whoever cannot read one of them.
select l.id, l.partition_id, l.priority, l.pos, l.range, l.low, l.high, l.members::text, l.attempt, l.rescues, l.is_ahead,
       l.task, extract(epoch from now() - l.ready_at)::double precision, l.batch, null, null, null, null
  from @schema@.claim(%(worker)s, %(token)s, %(firsts)s::int[], %(lasts)s::int[], %(slots)s, %(ahead)s, %(has_suspect)s,
                      %(freed)s::int[], %(caps)s::jsonb, %(batch_sizes)s::jsonb, %(started)s::int[], %(starts)s::bigint[]) as l

-- name: wake_gates
-- Wake who waits for room under a limit. See @schema@.wake_gates.
select @schema@.wake_gates(%(freed)s::int[])

-- name: held_leases
-- Every lease that a worker holds, for whoever lost an answer.
select id, partition_id, priority, pos, range, low, high, members::text, attempt, rescues, is_ahead, task,
       extract(epoch from now() - ready_at)::double precision, batch, token
  from @schema@.lease where worker_id = %(worker)s

-- name: settled_by
-- Of these attempts, those whose end a worker wrote. Index: finished_of_range, failure_of_job.
select g.job_id, g.attempt from unnest(%(jobs)s::bigint[], %(attempts)s::smallint[]) as g(job_id, attempt)
 where exists (select from @schema@.finished as f
                where f.range = g.job_id / 1024 and (g.job_id %% 1024)::smallint = any (f.positions)
                  and f.worker = %(name)s and f.attempt = g.attempt)
    or exists (select from @schema@.failure as x
                where x.job_id = g.job_id and x.attempt = g.attempt and x.worker = %(name)s)

-- name: settle_succeeded_if_leased
-- Jobs succeeded; those are returned that were not this worker's any more. See @schema@.settle_succeeded_if_leased.
select lease_id, position from @schema@.settle_succeeded_if_leased(
    %(worker)s, %(name)s, %(leases)s::bigint[], %(tokens)s::bigint[], %(ranges)s::bigint[], %(counts)s::int[], %(members)s::bit(1024)[], %(positions)s::text[],
    %(ages)s::text[], %(runs)s::text[], %(results)s::text[])

-- name: settle_ended_if_leased
-- The same for every other end. See @schema@.settle_ended_if_leased.
select lease_id, position from @schema@.settle_ended_if_leased(%(worker)s, %(name)s, %(ends)s::json)

-- name: lock_turn
-- See @schema@.lock_turn. Locks: the number of the worker's turns, shared.
select @schema@.lock_turn(%(worker)s, %(number)s)

-- name: children_of_jobs
-- Children of these few jobs, looked up one by one, and in order: where nearly all edges are one parent's the planner
-- would take each look for a scan. Index: the primary key of dependency.
select d.parent_id, d.child_id from unnest(%(parents)s::bigint[]) as p
 cross join lateral (
       select parent_id, child_id from @schema@.dependency where parent_id = p order by child_id offset 0) as d

-- name: children_of_ranges
-- Children of any job of these ranges, each with its parent, in order as above. Index: the primary key of dependency.
select d.parent_id, d.child_id from unnest(%(ranges)s::bigint[]) as r
 cross join lateral (
       select parent_id, child_id from @schema@.dependency
        where parent_id >= r * 1024 and parent_id < (r + 1) * 1024 order by parent_id, child_id offset 0) as d
