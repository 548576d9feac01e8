-- name: send_off
-- See @schema@.send_off. Locks: the rows it takes, skipping those that are locked.
select @schema@.send_off(%(rows)s)

-- name: has_left_places
-- Whether places that partitions have left are to be shut here, or hold anything that has to leave. The catalogue is small.
-- Indexes by partition.
select exists (
    select from @schema@.partitions_left() as l
     where l.has_moved
       and (l.shut_by is null
            or exists (select from @schema@.ready where partition_id = l.id)
            or exists (select from @schema@.scheduled where partition_id = l.id)
            or exists (select from @schema@.blocked where partition_id = l.id)
            or exists (select from @schema@.dead where partition_id = l.id)))
