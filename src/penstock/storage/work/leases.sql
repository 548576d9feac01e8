-- name: read_leased_jobs
-- Jobs as a worker starts them. Index: the primary key of the tables that `which` leaves.
select id, args::text, key, attributes::text from @schema@.{table} where {which}

-- name: read_leased_jobs_of_tasks
-- The same with the task, where jobs of several stand in one range.
select id, args::text, key, attributes::text, task from @schema@.{table} where {which}

-- name: within_bounds
-- Of a table of jobs: those of one stretch of a range.
id >= {low} and id < {high}

-- name: among_ids
-- Of a table of jobs: these.
id = any ({ids}::bigint[])
