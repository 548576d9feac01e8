-- name: traces_of_loads
-- Of ranges: the trace context of the load that each came with, where it has one. Index: the primary keys.
select r.range, l.trace::text
  from @schema@.load_range as r join @schema@.load as l on l.id = r.load_id
 where r.range = any (%(ranges)s::bigint[]) and l.trace is not null
