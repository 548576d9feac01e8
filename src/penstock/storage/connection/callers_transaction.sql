-- name: begin_callers_transaction
-- Says nothing: the driver begins the caller's transaction before it.
select
