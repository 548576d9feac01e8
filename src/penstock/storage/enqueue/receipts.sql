-- name: was_written
-- Whether the call that drew this id committed: the same id and the same transaction time. An id alone would not do:
-- after a crash a sequence may give a number again.
select exists (select from @schema@.job_stored where id = %(id)s and enqueued_at = %(enqueued_at)s)

-- name: find_token
-- The first job of the call that carried this token, among those written since; where the database was restored from a
-- backup, and numbers begin before what was written since, among the last thousand calls. Index: the primary key of job,
-- in order.
select id from @schema@.job
 where id > (select case when last_value * 1024 < %(after)s then (last_value - 1024 * 1000) * 1024 else %(after)s end
               from @schema@.range_number)
   and attributes @> %(token)s::jsonb order by id limit 1

-- name: find_or_void_receipt
-- Locks: the token, against the call that bears it.
select @schema@.find_or_void_receipt(%(token)s, %(kept_seconds)s)

-- name: newest_range
-- The number that was drawn last, as of now: what is drawn later is higher.
select last_value from @schema@.range_number
