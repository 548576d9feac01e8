-- name: history_bounds
-- Locks: none but those of reading. Scans at most about 100,000 rows of each slice.
select @schema@.history_bounds(%(parts)s, %(only)s, %(cold)s::int[])

-- name: waiting_bounds
-- Bounds that cut what has not ended into parts to be read side by side. See @schema@.waiting_bounds.
select @schema@.waiting_bounds(%(parts)s)

-- name: failure_bounds
-- The same for failed attempts. See @schema@.failure_bounds.
select @schema@.failure_bounds(%(parts)s)
