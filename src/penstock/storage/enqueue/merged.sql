-- name: enqueue_merged
-- Writes the jobs of calls that met, in one round trip and one transaction; the number of each range, or null, as a
-- JSON array. See @schema@.enqueue_merged. Locks: the maps, shared with all producers.
select array_to_json(@schema@.enqueue_merged(
           %(queues)s::int[], %(epochs)s::int[], %(partitions)s::int[], %(priorities)s::smallint[], %(tasks)s::text[],
           %(run_ats)s::timestamptz[], %(delays)s::double precision[], %(sizes)s::smallint[],
           %(job_ranges)s::smallint[], %(job_tasks)s::text[], %(keys)s::bytea[], %(args)s::json, %(attributes)s::jsonb,
           %(token)s::bigint, %(kept_seconds)s))

-- name: find_tokens
-- The first jobs of the ranges that were written together under tokens from this one on, among those written since; as
-- find_token for those of one call. Index: the primary key of job, in order.
select (attributes ->> 'token')::bigint, id from @schema@.job
 where id > (select case when last_value * 1024 < %(after)s then (last_value - 1024 * 1000) * 1024 else %(after)s end
               from @schema@.range_number)
   and (attributes ->> 'token')::bigint between %(first)s and %(last)s
