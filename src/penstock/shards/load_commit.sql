-- name: publish_load
-- See @schema@.publish_load. Locks: the queue's map (shared), the load's row, its ranges, idempotency keys in order.
select is_new, rows, duplicates, bad_rows, published_at
  from @schema@.publish_load(%(name)s, %(queue)s, %(batch)s, %(is_stream)s, %(origin)s, %(stages)s::text[],
                             %(counts)s::int[], %(bad_rows)s, %(homes)s::smallint[], %(commit_name)s,
                             %(shards)s::smallint[], %(rows)s::bigint[], %(trace)s::jsonb)

-- name: prepare_stages
-- See @schema@.prepare_stages. Locks: the queue's map (shared), the stages' ranges.
select @schema@.prepare_stages(%(commit_name)s, %(decider)s::smallint, %(name)s, %(queue)s, %(is_stream)s, %(origin)s,
                            %(stages)s::text[], %(counts)s::int[], %(homes)s::smallint[])

-- name: abort_commit
-- See @schema@.abort_commit. Locks: the commit.
select @schema@.abort_commit(%(commit_name)s)

-- name: release_stages
-- Let prepared stages of a commit go that was not decided. See @schema@.release_stages.
select @schema@.release_stages(%(commit_name)s)
