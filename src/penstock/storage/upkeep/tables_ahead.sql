-- name: read_room
-- The newest range number, the tables of jobs wholly ahead of it, all that are attached, and the width of the last.
select r.last_value, count(*) filter (where p.low > r.last_value), count(*) filter (where not p.is_detached),
       (array_agg(p.high - p.low order by p.low desc))[1]
  from @schema@.range_number as r cross join @schema@.job_table as p group by r.last_value

-- name: oldest_job
-- Index: the primary key of the first table of jobs that is not empty.
select id, extract(epoch from now() - enqueued_at)::double precision from @schema@.job order by id limit 1

-- name: add_job_table
-- Make the next table partition of `job`, for so many calls. See @schema@.add_job_table.
select @schema@.add_job_table(%(calls)s)

-- name: read_slices
-- Slices not yet opened, and whether the one in use was opened on an earlier day.
select count(*) filter (where used_from is null),
       coalesce((max(used_from) at time zone 'UTC')::date < (now() at time zone 'UTC')::date, true)
  from @schema@.slice

-- name: add_slice
-- Make the next slice of `finished`; it is not in use yet. See @schema@.add_slice.
select @schema@.add_slice()

-- name: use_next_slice
-- Take the next slice into use: from now on what ends is written there. See @schema@.use_next_slice.
select @schema@.use_next_slice()
