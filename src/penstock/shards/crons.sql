-- name: mark_cron_leaving
-- An entry that another shard is to have fires here no more. Waits for whoever fires it. Locks: its row.
update @schema@.cron set is_leaving = true where name = %(name)s and moves = %(moves)s
returning expression, timezone, queue_id, task, key, args, is_paused, next_at, last_at, last_job, created_at

-- name: take_cron
-- An entry comes from another shard, unless there is one of its name that moved as often. Locks: its row.
insert into @schema@.cron (name, expression, timezone, queue_id, task, key, args, is_paused, next_at, last_at, last_job, created_at, moves)
values (%(name)s, %(expression)s, %(timezone)s, %(queue_id)s, %(task)s, %(key)s, %(args)s, %(is_paused)s, %(next_at)s,
        %(last_at)s, %(last_job)s, %(created_at)s, %(moves)s)
on conflict (name) do update
   set expression = excluded.expression, timezone = excluded.timezone, queue_id = excluded.queue_id, task = excluded.task,
       key = excluded.key, args = excluded.args, is_paused = excluded.is_paused, next_at = excluded.next_at,
       last_at = excluded.last_at, last_job = excluded.last_job, moves = excluded.moves, is_leaving = false
 where excluded.moves > cron.moves

-- name: drop_cron_that_left
-- Drop an entry that another shard has taken over, if it has not come back meanwhile.
delete from @schema@.cron where name = %(name)s and moves = %(moves)s and is_leaving
