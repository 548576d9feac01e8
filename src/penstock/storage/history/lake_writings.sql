-- name: read_writings
-- What was written into lakes, oldest slice first.
select identity::text, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes
  from @schema@.writing order by slice, duty

-- name: writings_of_slices
-- Where the rows of slices lie that are gone from here. Index: a_slice_is_in_one_lake_once.
select identity::text, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes
  from @schema@.writing where slice = any (%(slices)s) and state in ('verified', 'lost') order by slice

-- name: add_writing
-- What an archive is about to write, or has written, into a lake.
insert into @schema@.writing (identity, slice, duty, lake, location, folder, state, jobs, checksum, files, bytes)
values (%(identity)s::uuid, %(slice)s, %(duty)s, %(lake)s, %(location)s, %(folder)s, %(state)s, %(jobs)s, %(checksum)s,
        %(files)s, %(bytes)s)

-- name: verify_writing
-- The files hold what the slice holds. Of one that was verified before, that was the same.
update @schema@.writing
   set state = 'verified', jobs = %(jobs)s, checksum = %(checksum)s, files = %(files)s, bytes = %(bytes)s, changed_at = now()
 where identity = %(identity)s::uuid and state in ('begun', 'verified')
returning true

-- name: mark_writings
-- Writings come to another state; those that are in it already are left alone.
update @schema@.writing set state = %(state)s, changed_at = now()
 where identity = any (%(identities)s::uuid[]) and state <> %(state)s
