-- name: whereabouts
-- The shard to ask for a job. See @schema@.whereabouts.
select @schema@.whereabouts(%(id)s)

-- name: are_here
-- Index: *_of_range, the primary keys.
select id from unnest(%(ids)s::bigint[]) as id
 where @schema@.is_here(id) or exists (select from @schema@.outbox where job_id = id)
