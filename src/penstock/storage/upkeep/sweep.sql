-- name: tally_bytes
-- How much is to be folded, without reading it.
select pg_relation_size('@schema@.tally')

-- name: cause_tally_bytes
-- The same of causes.
select pg_relation_size('@schema@.cause_tally')

-- name: rescue
-- Remove workers that are dead and free what they held. See @schema@.rescue.
select workers, jobs, dead from @schema@.rescue()

-- name: promote
-- Make ready what is due. See @schema@.promote.
select @schema@.promote(%(limit)s)

-- name: unblock
-- Let children go whose parents have ended, cancel them, or have them wait again. See @schema@.unblock.
select looked_at, changed, last_id, told from @schema@.unblock(%(children)s::bigint[], %(after)s, %(limit)s)

-- name: expire
-- Ends what has waited longer than its queue allows, at the head of every partition of such a queue in which anything is ready.
-- Index: ready_in_order.
select coalesce(sum(@schema@.expire_head(p.id, make_interval(secs => q.max_wait_seconds))), 0)
  from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
 where q.max_wait_seconds is not null
   and (select true from @schema@.ready as r where r.partition_id = p.id and not r.is_parked order by r.priority, r.pos limit 1)

-- name: park
-- Park what no worker has the task for, and bring back what one has. See @schema@.park.
select moved, last_id from @schema@.park(%(after)s)

-- name: fold
-- Add up the figures of `tally` into `total`. See @schema@.fold.
select @schema@.fold()

-- name: fold_causes
-- Add what was said of causes to them, and forget what is old. See @schema@.fold_causes.
select @schema@.fold_causes()

-- name: note_minute
-- Keep the figures of this minute; the seconds until the next. See @schema@.note_minute.
select @schema@.note_minute()

-- name: note_times
-- One process's histograms of waits and run times, a row for each queue. The minute is that of @schema@.note_minute; who looks at
-- the clock a moment early means the one that is about to begin. Locks: none that anybody waits for.
insert into @schema@.minute_histogram (minute, queue_id, waits, runs)
select date_trunc('minute', now() + interval '1 second'), queue, waits::int[], runs::int[]
  from unnest(%(queues)s::int[], %(waits)s::text[], %(runs)s::text[]) as t(queue, waits, runs)

-- name: clean_progress
-- Progress and asks to stop of jobs that have ended meanwhile.
with done as (
    delete from @schema@.progress as p where not exists (
        select from @schema@.lease as l where l.range = p.job_id / 1024) returning 1
), asks as (
    delete from @schema@.cancellation as c where @schema@.outcome_of(c.job_id) is not null returning 1
)
select (select count(*) from done) + (select count(*) from asks)

-- name: forget_receipts
-- Those that nobody can ask for any more, and the turns of workers that are gone. A scan: receipts are of calls through a
-- pooler, and turns are few. Locks: turns, skipping those that are locked.
with receipts as (
    delete from @schema@.receipt where kept_until < now() returning 1
), turns as (
    delete from @schema@.turn where worker_id in (
        select t.worker_id from @schema@.turn as t
         where not exists (select from @schema@.worker as w where w.id = t.worker_id) for update skip locked)
    returning 1
)
select (select count(*) from receipts) + (select count(*) from turns)

-- name: clean_spent
-- Only the newest row of each partition says what its rate has left. Index: the primary key.
with gone as (
    delete from @schema@.spent as s
     where exists (select from @schema@.spent as newer where newer.partition_id = s.partition_id and newer.id > s.id)
    returning 1
)
select count(*) from gone

-- name: note_trouble
-- A duty of upkeep has failed for so many seconds; null as the error: it is done again. Locks: its row.
with gone as (
    delete from @schema@.trouble where duty = %(duty)s and %(error)s::text is null
)
insert into @schema@.trouble (duty, error, since)
select %(duty)s, %(error)s, clock_timestamp() - make_interval(secs => %(seconds)s) where %(error)s::text is not null
on conflict (duty) do update set error = excluded.error, noted_at = excluded.noted_at
