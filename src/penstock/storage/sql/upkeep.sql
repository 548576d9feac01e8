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

-- name: mark_cron_leaving
-- An entry that another shard is to have fires here no more. Waits for whoever fires it. Locks: its row.
update @schema@.cron set is_leaving = true where name = %(name)s and moves = %(moves)s
returning expression, timezone, queue_id, task, key, args, is_paused, next_at, last_at, created_at

-- name: take_cron
-- An entry comes from another shard, unless there is one of its name that moved as often. Locks: its row.
insert into @schema@.cron (name, expression, timezone, queue_id, task, key, args, is_paused, next_at, last_at, created_at, moves)
values (%(name)s, %(expression)s, %(timezone)s, %(queue_id)s, %(task)s, %(key)s, %(args)s, %(is_paused)s, %(next_at)s,
        %(last_at)s, %(created_at)s, %(moves)s)
on conflict (name) do update
   set expression = excluded.expression, timezone = excluded.timezone, queue_id = excluded.queue_id, task = excluded.task,
       key = excluded.key, args = excluded.args, is_paused = excluded.is_paused, next_at = excluded.next_at,
       last_at = excluded.last_at, moves = excluded.moves, is_leaving = false
 where excluded.moves > cron.moves

-- name: drop_cron_that_left
-- Drop an entry that another shard has taken over, if it has not come back meanwhile.
delete from @schema@.cron where name = %(name)s and moves = %(moves)s and is_leaving

-- name: parents_elsewhere
-- Parents on other shards that were not heard of yet, from a place on. Index: dependency_elsewhere.
select distinct d.parent_id from @schema@.dependency as d
 where d.is_elsewhere and d.parent_id > %(after)s
   and not exists (select from @schema@.parent_end as e where e.job_id = d.parent_id)
 order by d.parent_id limit %(limit)s

-- name: ends_of_parents
-- Of these jobs of this shard those that have ended, and whether they succeeded; one that is gone did not. And those that
-- were carried to another shard, and to which. In one snapshot: a job that moves from table to table is found in one of
-- them; also while its history is on its way out. Index: *_of_range, the primary keys.
select p.id, coalesce(p.outcome = 0, false), case when p.outcome is null then p.place end
  from (select g.id, case when o.place is null then coalesce(o.outcome, @schema@.outcome_apart(g.id)) else o.outcome end as outcome,
               o.place
          from unnest(%(ids)s::bigint[]) as g(id)
         cross join lateral (
               select @schema@.outcome_of(g.id) as outcome, @schema@.whereabouts(g.id) as place offset 0) as o) as p
 where p.outcome is not null or p.place is distinct from @schema@.here()

-- name: await_parents
-- Notes that children on another shard wait for these jobs, so that their ends are kept. Index: the primary key.
insert into @schema@.awaited (parent_id, shard) select id, %(shard)s from unnest(%(ids)s::bigint[]) as g(id)
on conflict do nothing

-- name: check_parents
-- Whether jobs may be waited for from other shards: those that are not here, and where they went (null: nowhere). That
-- is noted at once, in the transaction that looks, which holds `finished`: whoever lets a slice of it go waits for this,
-- and then finds the note. Locks: the notes, in order.
with given as materialized (
    select parent_id, shard from unnest(%(parents)s::bigint[], %(shards)s::smallint[]) as g(parent_id, shard)
), noted as (
    insert into @schema@.awaited as a (parent_id, shard, checked_at)
    select parent_id, shard, now() from given where shard <> @schema@.here() order by parent_id, shard
    on conflict (parent_id, shard) do update set checked_at = greatest(a.checked_at, excluded.checked_at)
)
select p.id, p.place
  from (select g.id, @schema@.whereabouts(g.id) as place from (select distinct parent_id from given) as g(id)) as p
 where p.place is distinct from @schema@.here() order by p.id

-- name: await_no_more
-- But where a call asked of late: its child may come yet.
delete from @schema@.awaited
 where parent_id = any (%(ids)s::bigint[]) and shard = %(shard)s
   and (checked_at is null or checked_at < now() - interval '1 hour')

-- name: parents_awaited
-- Parents that ended, or are gone, and that children on other shards waited for at some time.
select a.shard, array_agg(a.parent_id) from @schema@.awaited as a
 where (a.checked_at is null or a.checked_at < now() - interval '1 hour')
   and (@schema@.outcome_of(a.parent_id) is not null or not @schema@.has_place(a.parent_id)) group by a.shard

-- name: parents_not_heard_of
-- Those of these parents that a child here waits for and whose end is not known here. Index: the primary keys.
select d.parent_id from @schema@.dependency as d
 where d.parent_id = any (%(ids)s::bigint[])
   and not exists (select from @schema@.parent_end as e where e.job_id = d.parent_id)

-- name: enter_parent_ends
-- How parents on other shards ended; a child here may go on by it.
insert into @schema@.parent_end (job_id, has_succeeded)
select g.id, g.has_succeeded from unnest(%(ids)s::bigint[], %(succeeded)s::boolean[]) as g(id, has_succeeded) on conflict do nothing

-- name: clean_parent_ends
-- Forgets the ends of parents that nobody here waits for. Index: the primary keys.
with gone as (
    delete from @schema@.parent_end as e
     where not exists (select from @schema@.dependency as d where d.parent_id = e.job_id) returning 1
)
select count(*) from gone

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
