-- name: read_range_number
-- The range number that was drawn last.
select last_value from @schema@.range_number

-- name: draw_up_to
-- See @schema@.draw_up_to.
select @schema@.draw_up_to(%(range)s, %(most)s)

-- name: start_ranges_after
-- See @schema@.start_ranges_after.
select @schema@.start_ranges_after(%(range)s)
