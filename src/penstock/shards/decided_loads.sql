-- name: publish_share
-- See @schema@.publish_share. Locks: the load's row, its ranges, idempotency keys in order.
select rows, duplicates
  from @schema@.publish_share(%(commit_name)s, %(name)s, %(queue)s, %(is_stream)s, %(origin)s, %(batch)s, %(is_paused)s,
                              %(trace)s::jsonb)

-- name: unpublished_shares
-- What was decided here and is not known to be published on its shard, in the order it has to be. Index: load_share_to_publish.
select p.load_id, p.batch, p.shard, p.commit_name, l.name, q.name, l.is_stream, l.origin, l.is_paused,
       l.trace::text
  from @schema@.load_share as p join @schema@.load as l on l.id = p.load_id join @schema@.queue as q on q.id = l.queue_id
 where p.published_at is null and (%(name)s::text is null or l.name = %(name)s)
 order by p.load_id, p.batch, p.shard

-- name: note_published
-- What a load came to on another shard, once. Index: the primary key.
update @schema@.load_share set published_at = now(), rows = %(rows)s, duplicates = %(duplicates)s
 where load_id = %(load)s and batch = %(batch)s and shard = %(shard)s and published_at is null

-- name: old_prepared_stages
-- Stages that have been prepared for so long that whoever made it may be dead. A small table, read as a whole.
select commit_name, decider from @schema@.prepared_stages where created_at < now() - make_interval(secs => %(seconds)s)
