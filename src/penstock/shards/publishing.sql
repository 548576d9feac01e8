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

-- name: publish_share
-- See @schema@.publish_share. Locks: the load's row, its ranges, idempotency keys in order.
select rows, duplicates
  from @schema@.publish_share(%(attempt)s, %(name)s, %(queue)s, %(is_stream)s, %(origin)s, %(batch)s, %(is_paused)s)

-- name: unpublished_shares
-- What was decided here and is not known to be published on its shard, in the order it has to be. Index: load_share_to_publish.
select p.load_id, p.batch, p.shard, p.attempt, l.name, q.name, l.is_stream, l.origin, l.is_paused
  from @schema@.load_share as p join @schema@.load as l on l.id = p.load_id join @schema@.queue as q on q.id = l.queue_id
 where p.published_at is null and (%(name)s::text is null or l.name = %(name)s)
 order by p.load_id, p.batch, p.shard

-- name: note_published
-- What a load came to on another shard, once. Index: the primary key.
update @schema@.load_share set published_at = now(), rows = %(rows)s, duplicates = %(duplicates)s
 where load_id = %(load)s and batch = %(batch)s and shard = %(shard)s and published_at is null

-- name: abort_attempt
-- See @schema@.abort_attempt. Locks: the attempt.
select @schema@.abort_attempt(%(attempt)s)

-- name: release_stages
-- Let prepared stages of a commit go that was not decided. See @schema@.release_stages.
select @schema@.release_stages(%(attempt)s)

-- name: old_prepared_stages
-- Stages that have been prepared for so long that whoever made it may be dead. A small table, read as a whole.
select attempt, home from @schema@.prepared_stages where created_at < now() - make_interval(secs => %(seconds)s)

-- name: find_batch
-- What was decided under a name, with what other shards published of it. is_home: by a commit here. Index: load_name_is_unique, the primary keys.
select q.name, l.is_stream, b.attempt is not null, b.rows + coalesce(p.rows, 0), b.duplicates + coalesce(p.duplicates, 0),
       b.bad_rows, b.published_at, l.origin
  from @schema@.load as l join @schema@.queue as q on q.id = l.queue_id
  left join @schema@.load_batch as b on b.load_id = l.id and b.batch = %(batch)s
 cross join lateral (
       select sum(rows)::bigint as rows, sum(duplicates)::bigint as duplicates
         from @schema@.load_share where load_id = l.id and batch = %(batch)s) as p
 where l.name = %(name)s

-- name: drop_stages
-- Forgets stages that are not to be published. What is prepared may have been decided. Index: load_range_of_stage.
delete from @schema@.load_range where stage = any (%(stages)s::text[]) and load_id is null and attempt is null
