-- name: enter_stage
-- For the driver of bulk writes, with its kind of parameters.
select @schema@.enter_stage($1, $2::int)

-- name: draw_staged_ranges
-- Range numbers for a stage; its rows are no jobs before they are published.
select @schema@.draw_range() as range from generate_series(1, $1::int)

-- name: stage_time
-- The time that all jobs of a stage bear as theirs.
select now()

-- name: stage_ranges
-- Note the ranges of a stage. See @schema@.stage_ranges.
select @schema@.stage_ranges($1, $2::text::json)
