-- name: begin
-- Begin a transaction, where that travels with its first statement.
begin

-- name: begin_snapshot
-- The same, to read several things as of one moment.
begin isolation level repeatable read read only

-- name: commit
-- End a transaction, where that travels with its last statement.
commit
