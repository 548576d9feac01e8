-- name: note_started_if_leased
-- Everything that is left of these leases has started by now: a crash is charged to it.
update @schema@.lease set is_ahead = false
 where id = any (%(leases)s::bigint[]) and worker_id = %(worker)s
   and token = (%(tokens)s::bigint[])[array_position(%(leases)s::bigint[], id)]

-- name: split_lease_if_leased
-- Give one job of a lease a lease of its own. See @schema@.split_lease_if_leased.
select @schema@.split_lease_if_leased(%(worker)s, %(lease)s, %(token)s, %(range)s, %(position)s::smallint)

-- name: wait_a_second_for_locks
-- From here to the end of the transaction no lock is waited for longer than this.
select set_config('lock_timeout', '1s', true)
