-- name: rescue
-- Remove workers that are dead and free what they held. See @schema@.rescue.
select workers, jobs, dead from @schema@.rescue()

-- name: promote
-- Make ready what is due. See @schema@.promote.
select @schema@.promote(%(limit)s)

-- name: unblock
-- Let children go whose parents have ended. See @schema@.unblock.
select looked_at, freed, last_id, cancelled from @schema@.unblock(%(children)s::bigint[], %(after)s, %(limit)s)

-- name: expire
-- Ends what has waited longer than its queue allows, at the head of every partition that has a limit.
select coalesce(sum(@schema@.expire_head(p.id, make_interval(secs => q.max_wait_seconds))), 0)
  from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id where q.max_wait_seconds is not null

-- name: park
-- Park what no worker has the task for, and bring back what one has. See @schema@.park.
select @schema@.park()

-- name: fold
-- Add up the figures of `tally` into `total`. See @schema@.fold.
select @schema@.fold()

-- name: due_crons
-- Some entries that are due, from a place on: what cannot fire now keeps no other from it. Locks: these entries, skipping
-- those others fire. Index: cron_by_next_time.
select name, expression, timezone, queue_id, task, key, args, next_at from @schema@.cron
 where next_at <= now() and not is_paused and not is_leaving
   and (%(next_at)s::timestamptz is null or (next_at, name) > (%(next_at)s, %(name)s::text))
 order by next_at, name limit 500 for update skip locked

-- name: advance_crons
-- Entries have fired: when they are due next. Locks: their rows, which the same transaction holds.
update @schema@.cron as c set next_at = g.next_at, last_at = g.last_at
  from unnest(%(names)s::text[], %(next_at)s::timestamptz[], %(last_at)s::timestamptz[]) as g(name, next_at, last_at)
 where c.name = g.name

-- name: write_cron
-- Defines an entry. The same definition again changes nothing, so that every worker may say it at its start.
insert into @schema@.cron (name, expression, timezone, queue_id, task, key, args, next_at)
values (%(name)s, %(expression)s, %(timezone)s, %(queue_id)s, %(task)s, %(key)s, %(args)s, %(next_at)s)
on conflict (name) do update
   set expression = excluded.expression, timezone = excluded.timezone, queue_id = excluded.queue_id,
       task = excluded.task, key = excluded.key, args = excluded.args,
       next_at = case when (cron.expression, cron.timezone) = (excluded.expression, excluded.timezone)
                      then cron.next_at else excluded.next_at end
 where (cron.expression, cron.timezone, cron.queue_id, cron.task, cron.key, cron.args::text)
       is distinct from (excluded.expression, excluded.timezone, excluded.queue_id, excluded.task, excluded.key, excluded.args::text)

-- name: read_crons
-- One entry, or all, as they are on this shard.
select c.name, c.expression, c.timezone, q.name, c.task, c.key, c.args, c.is_paused, c.next_at, c.last_at, c.is_leaving, c.moves
  from @schema@.cron as c join @schema@.queue as q on q.id = c.queue_id
 where %(name)s::text is null or c.name = %(name)s order by c.name

-- name: pause_cron
-- Pause an entry, or let it go on from a time. Locks: its row.
update @schema@.cron set is_paused = %(is_paused)s, next_at = case when %(is_paused)s then next_at else %(next_at)s end
 where name = %(name)s returning name

-- name: remove_cron
-- Remove an entry. Locks: its row.
delete from @schema@.cron where name = %(name)s returning name

-- name: hold_cron_map
-- Holds the map by which an entry is at home; false where the queue has another by now. See @schema@.lock_map.
select @schema@.lock_map(%(queue_id)s, %(epoch)s)

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
-- Those that nobody can ask for any more, and the turns of workers that are gone. A scan: where nothing goes through a
-- pooler both are empty. Locks: turns, skipping those held.
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
