-- Jobs are cancelled, or put off.

-- Cancels those jobs of a range that p_members names, for p_reason: `cancelled` are those that waited and have ended now,
-- `asked` those that run and were asked to stop, where p_asks says so; the others have ended, are unknown, or moved
-- meanwhile. Leases are read without a lock: a handler may hold its own for long, and an ask that comes late is cleaned or
-- heeded next time.
-- Locks: ready, scheduled, then blocked rows of the range.
create or replace function @schema@.cancel_in_range(
    p_range bigint, p_members bit(1024), p_reason text default null, p_asks boolean default true,
    out cancelled bit(1024), out asked bit(1024))
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_none bit(1024) := repeat('0', 1024)::bit(1024);
    v_row  record;
begin
    cancelled := v_none;
    for v_row in
        select ctid as tid, partition_id, attempt, coalesce(members, @schema@.span(low, high)) as bitmap
          from @schema@.ready
         where range = p_range and (coalesce(members, @schema@.span(low, high)) & p_members) <> v_none
           for update
    loop
        delete from @schema@.ready where ctid = v_row.tid and (v_row.bitmap & ~p_members) = v_none;
        update @schema@.ready set members = v_row.bitmap & ~p_members
         where ctid = v_row.tid and (v_row.bitmap & ~p_members) <> v_none;
        perform @schema@.end_as_cancelled(p_range, v_row.partition_id, v_row.attempt, v_row.bitmap & p_members, 'ready', 0, p_reason);
        cancelled := cancelled | (v_row.bitmap & p_members);
    end loop;
    for v_row in
        select ctid as tid, partition_id, attempt, pos, coalesce(members, @schema@.span(low, high)) as bitmap
          from @schema@.scheduled
         where range = p_range and (coalesce(members, @schema@.span(low, high)) & p_members) <> v_none
           for update
    loop
        delete from @schema@.scheduled where ctid = v_row.tid and (v_row.bitmap & ~p_members) = v_none;
        update @schema@.scheduled set members = v_row.bitmap & ~p_members
         where ctid = v_row.tid and (v_row.bitmap & ~p_members) <> v_none;
        perform @schema@.end_as_cancelled(p_range, v_row.partition_id, v_row.attempt, v_row.bitmap & p_members, 'scheduled', 0, p_reason);
        cancelled := cancelled | (v_row.bitmap & p_members);
        -- It held its key, which goes on now.
        perform @schema@.wake(queue_id) from @schema@.partition where id = v_row.partition_id and v_row.pos is not null;
    end loop;
    for v_row in
        with gone as (
            delete from @schema@.blocked
             where job_id between p_range * 1024 and p_range * 1024 + 1023 and get_bit(p_members, (job_id % 1024)::int) = 1
            returning job_id, partition_id, parents, cancelled_at, was_cancelled
        ), edges as (
            delete from @schema@.dependency as d using gone as g where d.parent_id = any (g.parents) and d.child_id = g.job_id
        )
        -- One that was cancelled for now does not come back any more.
        select partition_id, case when cancelled_at is null then 'blocked' else 'cancelled' end as state,
               bit_or(@schema@.single((job_id % 1024)::int)) as bitmap, count(*) filter (where was_cancelled) as counted
          from gone group by 1, 2
    loop
        perform @schema@.end_as_cancelled(p_range, v_row.partition_id, 1::smallint, v_row.bitmap, v_row.state, v_row.counted::int,
                                         p_reason);
        cancelled := cancelled | v_row.bitmap;
    end loop;
    select coalesce(bit_or(coalesce(members, @schema@.span(low, high)) & p_members), v_none)
      into asked from @schema@.lease where range = p_range and p_asks;
    if asked <> v_none then
        insert into @schema@.cancellation (job_id, reason)
        select p_range * 1024 + m, p_reason from unnest(@schema@.positions(0::smallint, 1024::smallint, asked)) as m
        on conflict do nothing;
    end if;
end $$;

-- Writes the end of jobs of one range that were in p_state until just now: they waited, or were cancelled for now. p_counted:
-- so many of them are counted as cancelled already.
create or replace function @schema@.end_as_cancelled(
    p_range bigint, p_partition int, p_attempt smallint, p_members bit(1024), p_state text, p_counted int, p_reason text)
returns void
language sql
begin atomic
    insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
    values (@schema@.current_slice(), p_range, p_partition, 2, p_attempt, @schema@.positions(0::smallint, 1024::smallint, p_members),
            p_reason);
    insert into @schema@.tally (partition_id, opened, scheduled, blocked, cancelled)
    select p_partition, -n * (p_state = 'ready')::int, -n * (p_state = 'scheduled')::int, -n * (p_state = 'blocked')::int, n - p_counted
      from (select bit_count(p_members)::int as n) as counted;
end;

-- Keeps with a job, which the caller has locked where it waits, for when a person has put it off. One that never was to wait
-- and is to run now has nothing to keep. Backoff and snoozes are not kept here: each would rewrite a job.
create or replace function @schema@.keep_run_at(p_job bigint, p_run_at timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update @schema@.job set attributes = @schema@.with_run_at(attributes, p_run_at)
     where id = p_job and (p_run_at > now() or attributes ? 'run_at');
    -- Where it was moved there meanwhile, the update waited until it was.
    if not found then
        update @schema@.job_kept set attributes = @schema@.with_run_at(attributes, p_run_at)
         where id = p_job and (p_run_at > now() or attributes ? 'run_at');
    end if;
end $$;

-- Moves a waiting job to another time; a time that has come makes it ready, behind what is ready already, or where it
-- stood if it held its key; or sends it to the shard its key lives on by now. One that was ready goes to the end of the
-- order when it is due. Null: it runs now, and what was asked for it stays as it was, so that a job is not rewritten for a
-- retry. Returns the state it is in now, or null where it does not wait. Locks: its scheduled row, or
-- its partition's where an owner reads it, and its ready row, or its blocked row; then its queue's map, shared.
create or replace function @schema@.reschedule_job(p_job bigint, p_run_at timestamptz) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_position smallint := p_job % 1024;
    v_row      record;
    v_target   record;
    v_run_at   timestamptz := coalesce(p_run_at, now());
begin
    select ctid as tid, 'scheduled' as state, partition_id, priority, range, attempt, rescues, pos, epoch, task,
           @schema@.members_count(low, high, members) = 1 as is_whole
      into v_row from @schema@.scheduled
     where range = p_job / 1024 and @schema@.has_member(low, high, members, v_position) for update;
    if found then
        delete from @schema@.scheduled where ctid = v_row.tid and v_row.is_whole;
        update @schema@.scheduled set members = coalesce(members, @schema@.span(low, high)) & ~@schema@.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    else
        if v_run_at > now() then
            perform @schema@.read_anew(array(
                select partition_id from @schema@.ready
                 where range = p_job / 1024 and epoch is not null and @schema@.has_member(low, high, members, v_position)));
        end if;
        select ctid as tid, 'ready' as state, partition_id, priority, range, attempt, rescues, null::bigint as pos, epoch, task,
               @schema@.members_count(low, high, members) = 1 as is_whole
          into v_row from @schema@.ready
         where range = p_job / 1024 and @schema@.has_member(low, high, members, v_position) for update;
        if not found then
            update @schema@.blocked set run_at = v_run_at where job_id = p_job and cancelled_at is null;
            if not found then
                return null;
            end if;
            if p_run_at is not null then
                perform @schema@.keep_run_at(p_job, p_run_at);
            end if;
            return 'blocked';
        end if;
        if v_run_at <= now() then
            return 'ready';
        end if;
        delete from @schema@.ready where ctid = v_row.tid and v_row.is_whole;
        update @schema@.ready set members = coalesce(members, @schema@.span(low, high)) & ~@schema@.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    end if;
    if p_run_at is not null then
        perform @schema@.keep_run_at(p_job, p_run_at);
    end if;
    v_target := v_row;
    if v_run_at > now() then
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, attempt, rescues, pos, epoch, task)
        values (v_run_at, v_row.partition_id, v_row.priority, v_row.range, v_position, v_position + 1, v_row.attempt,
                v_row.rescues, v_row.pos, v_row.epoch, v_row.task);
    else
        if v_row.task = '' and v_row.pos is null then
            select m.partition_id, m.epoch into v_target from @schema@.partition_by_map(v_row.partition_id, p_job) as m;
        end if;
        insert into @schema@.outbox (shard, job_id, partition_id, attempt)
        select shard, p_job, v_row.partition_id, v_row.attempt
          from @schema@.partition where id = v_target.partition_id and shard <> @schema@.here();
        if found then
            v_target := v_row;
        else
            insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, changed, epoch, task)
            values (v_target.partition_id, v_row.priority, coalesce(v_row.pos, @schema@.draw_range()), v_row.range, v_position,
                    v_position + 1, v_row.attempt, v_row.rescues,
                    case when v_target.epoch is not null then pg_current_xact_id() end, v_target.epoch, v_row.task);
            perform @schema@.wake(queue_id) from @schema@.partition where id = v_target.partition_id;
        end if;
    end if;
    insert into @schema@.tally (partition_id, opened, scheduled)
    select partition_id, sum(opened), sum(scheduled)
      from (values (v_target.partition_id, (v_run_at <= now())::int, 0),
                   (v_row.partition_id, -(v_row.state = 'ready')::int,
                    (v_run_at > now())::int - (v_row.state = 'scheduled')::int)) as c(partition_id, opened, scheduled)
     group by partition_id;
    return case when v_run_at > now() then 'scheduled' else 'ready' end;
end $$;
