-- name: note_written
-- See @schema@.note_written: the receipt of a large call, before its COMMIT.
select @schema@.note_written(%(token)s, %(kept_seconds)s, %(first_id)s)
