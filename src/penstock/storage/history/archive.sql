-- name: identity
-- By this a lake tells the slices of this database from those of others. None until an app has taken it up.
select coalesce(identity::text, 'none') from @schema@.catalogue

-- name: slices
-- Every slice whose rows a reader of history must look for here. Read before the lake is asked: what leaves later is in
-- the lake by then.
select number from @schema@.slice where used_from is not null order by number

-- name: try_duty_of_archiving
-- One at a time, until the transaction ends. It may last, so the server must not end it for being idle.
select set_config('idle_in_transaction_session_timeout', '0', true), pg_try_advisory_xact_lock(hashtext('@schema@.archive'))

-- name: take_duty_of_archiving
-- From now on whoever had it before can do nothing more. Locks: the duty; whoever is in the middle of an act is waited for.
update @schema@.archive_duty
   set number = number + 1, token = gen_random_uuid(), location = %(location)s, began_at = now(), ended_at = null
returning number, token::text

-- name: prove_duty_of_archiving
-- No row where another has taken it. Nobody takes it until this transaction ends, which may be a while.
-- Locks: the duty.
select set_config('idle_in_transaction_session_timeout', '0', true), set_config('lock_timeout', '60s', true)
  from @schema@.archive_duty where number = %(duty)s and token = %(token)s::uuid for update

-- name: end_duty_of_archiving
-- The archive has done its round: whoever looks knows that nobody acts now.
update @schema@.archive_duty set ended_at = now()

-- name: wait_for_duty_of_pruning
-- Locks: prune's; a run of it lasts some seconds.
select pg_advisory_xact_lock(hashtext('@schema@.prune'))

-- name: has_ended
-- Whether anything has ended since the slice in use was opened. See @schema@.has_ended.
select @schema@.has_ended()

-- name: unsealed_slices
-- Closed slices that somebody may still write to.
select number from @schema@.slice
 where number < @schema@.current_slice() and taken_at is null and not is_detached
   and not @schema@.is_sealed(writers, '@schema@.finished')
 order by number

-- name: take_slices
-- Take every sealed slice that prune has not marked. See @schema@.take_slices.
select @schema@.take_slices()

-- name: taken_slices
-- The slices that an archive has taken, and how far each is on its way out of `finished`.
select number, @schema@.standing('finished_' || number, '@schema@.finished') from @schema@.slice
 where taken_at is not null order by number

-- name: standing_of_slice
-- How far one slice is on its way out of `finished`.
select @schema@.standing('finished_' || %(number)s::int, '@schema@.finished')

-- name: queues_of_slice
-- The names of the queues that a lake makes folders of.
select name from @schema@.queue

-- name: checksum_slice
-- The count and the checksum of a stretch of a slice, to compare with what a lake holds. See @schema@.checksum_slice.
select jobs, checksum from @schema@.checksum_slice(%(number)s, %(low)s, %(high)s)

-- name: has_rows_of_slice
-- Whether a slice has any row. See @schema@.has_rows.
select @schema@.has_rows(%(number)s)

-- name: lock_slice
-- Keep everybody from changing a slice until this transaction ends. See @schema@.lock_slice.
select @schema@.lock_slice(%(number)s)

-- name: let_slice_go
-- Let a slice go that is in a lake, with all that belongs to its jobs. See @schema@.let_slice_go.
select @schema@.let_slice_go(%(number)s, %(days)s)

-- name: abandon_writings
-- What other archives began in this lake and did not verify, and what was abandoned before: somebody slow may have
-- written there since. Returns all of them.
with begun as (
    update @schema@.writing set state = 'abandoned', changed_at = now()
     where lake = %(lake)s and state = 'begun' and duty <> %(duty)s
    returning identity, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes
), former as (
    delete from @schema@.writing where state = 'abandoned' and changed_at < now() - interval '30 days'
)
select identity::text, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes from begun
union all
select identity::text, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes
  from @schema@.writing where lake = %(lake)s and state = 'abandoned'
