-- name: find_batch
-- What was published under a name, whether it was decided here, and what other shards published of it. Indexes:
-- load_name_is_unique, the primary keys.
select q.name, l.is_stream, b.commit_name is not null, b.rows + coalesce(p.rows, 0), b.duplicates + coalesce(p.duplicates, 0),
       b.bad_rows, b.published_at, l.origin
  from @schema@.load as l join @schema@.queue as q on q.id = l.queue_id
  left join @schema@.load_batch as b on b.load_id = l.id and b.batch = %(batch)s
 cross join lateral (
       select sum(rows)::bigint as rows, sum(duplicates)::bigint as duplicates
         from @schema@.load_share where load_id = l.id and batch = %(batch)s) as p
 where l.name = %(name)s

-- name: drop_stages
-- Forgets stages that are not to be published. What is prepared may have been decided. Index: load_range_of_stage.
delete from @schema@.load_range where stage = any (%(stages)s::text[]) and load_id is null and commit_name is null
