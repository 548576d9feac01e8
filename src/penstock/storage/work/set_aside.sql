-- name: set_aside
-- See @schema@.set_aside. Locks: ready rows by range. Index: ready_of_range.
select @schema@.set_aside(%(jobs)s::bigint[], %(reasons)s::text[])
