-- name: due_crons
-- Some entries that are due, from one on: what cannot fire now keeps no other from it. Locks: these entries, skipping
-- those others fire. Index: cron_by_next_time.
select name, expression, timezone, queue_id, task, key, args, next_at from @schema@.cron
 where next_at <= now() and not is_paused and not is_leaving
   and (%(next_at)s::timestamptz is null or (next_at, name) > (%(next_at)s, %(name)s::text))
 order by next_at, name limit 500 for update skip locked

-- name: advance_crons
-- Entries have fired: when they are due next. Locks: their rows, which the same transaction holds.
update @schema@.cron as c set next_at = g.next_at, last_at = g.last_at, last_job = coalesce(g.last_job, c.last_job)
  from unnest(%(names)s::text[], %(next_at)s::timestamptz[], %(last_at)s::timestamptz[], %(last_jobs)s::bigint[])
       as g(name, next_at, last_at, last_job)
 where c.name = g.name

-- name: note_cron_job
-- An entry has enqueued a job out of turn. Locks: its row.
update @schema@.cron set last_job = %(job_id)s where name = %(name)s

-- name: write_cron
-- Defines an entry. The same definition again changes nothing, so that every worker may say it at its start.
insert into @schema@.cron (name, expression, timezone, queue_id, task, key, args, next_at)
values (%(name)s, %(expression)s, %(timezone)s, %(queue_id)s, %(task)s, %(key)s, %(args)s, %(next_at)s)
on conflict (name) do update
   set expression = excluded.expression, timezone = excluded.timezone, queue_id = excluded.queue_id,
       task = excluded.task, key = excluded.key, args = excluded.args,
       next_at = case when (cron.expression, cron.timezone) = (excluded.expression, excluded.timezone)
                      then cron.next_at else excluded.next_at end
 where (cron.expression, cron.timezone, cron.queue_id, cron.task, cron.key, cron.args::text)
       is distinct from (excluded.expression, excluded.timezone, excluded.queue_id, excluded.task, excluded.key, excluded.args::text)

-- name: read_crons
-- One entry, or all, as they are on this shard.
select c.name, c.expression, c.timezone, q.name, c.task, c.key, c.args, c.is_paused, c.next_at, c.last_at, c.last_job, c.is_leaving, c.moves
  from @schema@.cron as c join @schema@.queue as q on q.id = c.queue_id
 where %(name)s::text is null or c.name = %(name)s order by c.name

-- name: pause_cron
-- Pause an entry, or let it go on from a time. Locks: its row.
update @schema@.cron set is_paused = %(is_paused)s, next_at = case when %(is_paused)s then next_at else %(next_at)s end
 where name = %(name)s returning name

-- name: remove_cron
-- Remove an entry. Locks: its row.
delete from @schema@.cron where name = %(name)s returning name

-- name: lock_cron_map
-- Holds the map by which an entry is at home; false where the queue has another by now. See @schema@.lock_map.
select @schema@.lock_map(%(queue_id)s, %(epoch)s)

-- name: database_now
-- The time that every stored instant is compared with.
select now()
