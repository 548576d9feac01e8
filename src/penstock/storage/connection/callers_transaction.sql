-- name: begin_callers_transaction
-- Says nothing: the driver begins the caller's transaction before it.
select

-- name: set_savepoint
-- What follows in the caller's transaction can be undone by itself.
savepoint penstock

-- name: roll_back_to_savepoint
-- Undo what followed; the caller's transaction can go on.
rollback to savepoint penstock

-- name: release_savepoint
-- What followed is a part of the caller's transaction.
release savepoint penstock
