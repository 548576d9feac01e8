-- name: delete_queue
-- See @schema@.delete_queue. Locks: the catalogue, the map's row, the partitions', the queue's.
select @schema@.delete_queue(%(queue)s)

-- name: held_by_deleted
-- What deleted queues hold here. See @schema@.held_by_deleted.
select partition_id, opened, scheduled, blocked, dead from @schema@.held_by_deleted()

-- name: forget_deleted
-- Cron entries, halted keys and idempotency keys of deleted queues. See @schema@.forget_deleted.
select @schema@.forget_deleted(%(limit)s)

-- name: is_of_deleted
-- Whether a job's queue was deleted. Index: the primary keys.
select exists (select from @schema@.job_stored as j join @schema@.partition as p on p.id = j.partition_id
                 join @schema@.queue as q on q.id = p.queue_id where j.id = %(id)s and q.deleted_at is not null)
