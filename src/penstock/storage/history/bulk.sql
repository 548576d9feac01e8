-- name: history_bounds
-- Locks: none but those of reading. Scans at most about 100,000 rows of each slice.
select @schema@.history_bounds(%(parts)s, %(only)s, %(cold)s::int[])

-- name: waiting_bounds
-- Bounds that cut what has not ended into parts to be read side by side. See @schema@.waiting_bounds.
select @schema@.waiting_bounds(%(parts)s)

-- name: failure_bounds
-- The same for failed attempts. See @schema@.failure_bounds.
select @schema@.failure_bounds(%(parts)s)

-- name: read_history_between
-- What ended, of an interval of ranges, by COPY. See @schema@.history_between, which is inlined.
select {columns} from @schema@.history_between({low}, {high}, {only}, {hot}::int[], {cold}::int[]) where {conditions}

-- name: read_waiting_between
-- What has not ended, of an interval of ranges, by COPY. See @schema@.waiting_between, which is inlined.
select {columns} from @schema@.waiting_between({low}, {high}) where {conditions}

-- name: read_failures_between
-- Attempts that failed, of an interval of ranges, by COPY. See @schema@.failures_between, which is inlined.
select {columns} from @schema@.failures_between({low}, {high}) where {conditions}
