-- name: publish_load
-- See @schema@.publish_load. Locks: the queue's map (shared), the load's row, its ranges, idempotency keys in order.
select is_new, rows, duplicates, bad_rows, published_at
  from @schema@.publish_load(%(name)s, %(queue)s, %(batch)s, %(is_stream)s, %(origin)s, %(stages)s::text[],
                             %(counts)s::int[], %(bad_rows)s, %(homes)s::smallint[], %(attempt)s, %(shards)s::smallint[],
                             %(rows)s::bigint[])

-- name: prepare_stages
-- See @schema@.prepare_stages. Locks: the queue's map (shared), the stages' ranges.
select @schema@.prepare_stages(%(attempt)s, %(home)s::smallint, %(name)s, %(queue)s, %(is_stream)s, %(origin)s,
                            %(stages)s::text[], %(counts)s::int[], %(homes)s::smallint[])

-- name: abort_attempt
-- See @schema@.abort_attempt. Locks: the attempt.
select @schema@.abort_attempt(%(attempt)s)

-- name: release_stages
-- Let prepared stages of a commit go that was not decided. See @schema@.release_stages.
select @schema@.release_stages(%(attempt)s)
