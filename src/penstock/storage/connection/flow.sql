-- name: session_states
-- What these sessions do, for how many seconds they have, and what they wait for; and the one that asks, by which it is
-- known whether process numbers are the server's own or a pooler made them up.
select pid, state, wait_event_type, extract(epoch from clock_timestamp() - state_change)::double precision, backend_start
  from pg_stat_activity where pid = any (%(pids)s::int[]) or pid = pg_backend_pid()
