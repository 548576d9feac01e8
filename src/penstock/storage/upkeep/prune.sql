-- name: dead_before
-- Dead letters that have lain longer than that. Index: dead_by_time.
select job_id from @schema@.dead where failed_at < now() - make_interval(secs => %(age_seconds)s)
 order by failed_at limit %(limit)s

-- name: try_duty_of_pruning
-- One at a time. The lock belongs to the transaction: it ends with it, also behind a pooler, also in a crash.
select pg_try_advisory_xact_lock(hashtext('@schema@.prune'))

-- name: be_impatient
-- From here to the end of the transaction no lock is waited for longer than this.
select set_config('lock_timeout', '100ms', true)

-- name: be_impatient_in_session
-- The same until the session ends: for a connection that nobody else has afterwards.
select set_config('lock_timeout', '100ms', false)

-- name: detach_concurrently
-- Take a table out of its parent. Outside of a transaction: it waits for those who read the parent.
-- Locks: the parent against other changes of it; then the table. No reader of the parent waits.
alter table @schema@.{parent} detach partition @schema@.{table} concurrently

-- name: finish_detaching
-- The same of a table of which it was begun, and broken off. Locks: the table.
alter table @schema@.{parent} detach partition @schema@.{table} finalize

-- name: note_writers
-- Note who may still write to tables that were passed. See @schema@.note_writers.
select @schema@.note_writers()

-- name: slices_to_let_go
-- Sealed slices that no archive has taken, oldest first: how many days ago each was passed, and how far its way out has come.
select s.number, extract(epoch from now() - n.used_from)::double precision / 86400, s.counts, s.is_detached,
       @schema@.standing('finished_' || s.number, '@schema@.finished')
  from @schema@.slice as s
 cross join lateral (select min(used_from) as used_from from @schema@.slice where number > s.number) as n
 where s.taken_at is null and (s.is_detached or @schema@.is_sealed(s.writers, '@schema@.finished'))
 order by s.number

-- name: job_tables_to_let_go
-- Sealed tables of jobs, oldest first, with their size, whether their keys outlive them, and how far their way out has
-- come.
select p.low, p.high, p.is_detached, coalesce(p.keys_until > now(), false), @schema@.standing('job_' || p.low, '@schema@.job'),
       greatest((select reltuples from pg_class where oid = to_regclass('@schema@.job_' || p.low)), 0)::bigint
  from @schema@.job_table as p
 where p.is_detached or @schema@.is_sealed(p.writers, '@schema@.job')
 order by p.low

-- name: detach_table
-- For workers that do not own the tables. Locks: the parent and the table against everybody, for as long as others need
-- to end what they do.
select @schema@.detach_table(%(parent)s, %(table)s)

-- name: drop_table
-- Locks: the table.
select @schema@.drop_table(%(table)s)

-- name: count_slice
-- Count a sealed slice by outcome, once. See @schema@.count_slice.
select @schema@.count_slice(%(number)s)

-- name: keep_longer
-- Copy what must be kept longer into the slice in use, some pages at a time. See @schema@.keep_longer.
select @schema@.keep_longer(%(number)s, %(days)s::double precision[], %(pages)s)

-- name: keep_parents
-- Put the ends that children still wait for back into the slice in use. See @schema@.keep_parents.
select @schema@.keep_parents(%(number)s)

-- name: forget_slice
-- Delete what is noted elsewhere about the jobs of a slice that goes, some pages at a time. See @schema@.forget_slice.
select @schema@.forget_slice(%(number)s, %(pages)s)

-- name: remove_slice
-- A slice is gone.
delete from @schema@.slice where number = %(number)s

-- name: keep_jobs
-- Move the few jobs to `job_kept` that are wanted longer than their table partition. See @schema@.keep_jobs.
select @schema@.keep_jobs(%(low)s, %(high)s, %(few)s)

-- name: forget_jobs
-- Delete what is noted elsewhere about the jobs of a table partition that goes. See @schema@.forget_jobs.
select @schema@.forget_jobs(%(low)s, %(high)s, %(keeps_keys)s, %(after)s, %(limit)s)

-- name: remove_job_table
-- Unless idempotency keys outlive it; then it is removed when they have. With it the ranges of loads that lay there, but for those of which jobs are kept. Index: the primary keys.
with part as (
    delete from @schema@.job_table where low = %(low)s and not coalesce(keys_until > now(), false) returning low, high
)
delete from @schema@.load_range as r using part as p
 where r.range >= p.low and r.range < p.high
   and not exists (select from @schema@.job_kept as k where k.id >= r.range * 1024 and k.id < (r.range + 1) * 1024)

-- name: clean_kept
-- Delete kept jobs that nothing needs any more. See @schema@.clean_kept.
select @schema@.clean_kept(%(after)s, %(limit)s)
