-- name: end_backend
-- By when it began too: process numbers are given again. Of other roles nobody sees that.
select pg_terminate_backend(pid) from pg_stat_activity where pid = %(pid)s and backend_start = %(started_at)s

-- name: backend_is_alive
-- Whether the session that a call was sent on still lives: until it has ended the call may commit.
select exists (select from pg_stat_activity where pid = %(pid)s and backend_start = %(started_at)s)

-- name: commit_nothing
-- Write a record to the log and nothing else: its COMMIT comes back when those before it are durable.
select pg_logical_emit_message(true, 'penstock', '')

-- name: renew_turns
-- See @schema@.renew_turns. Locks: the number of the worker's turns.
select @schema@.renew_turns(%(worker)s)

-- name: ask_nothing
-- For the answer alone: whether there is a server at the other end.
select 1
