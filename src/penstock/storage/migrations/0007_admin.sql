-- breaking: no
-- What a person does to single jobs. A job is looked for where it may be, under the row's lock; each look is
-- a statement of its own, so that a job that has just moved is found in its new place.

-- Ends a waiting job as cancelled and returns 'cancelled'; asks a running one to stop and returns 'running';
-- returns null where it has ended or is unknown.
create function penstock.cancel_job(p_job bigint) returns text
language plpgsql as $$
declare
    v_range     bigint := p_job / 1024;
    v_position  smallint := p_job % 1024;
    v_partition int;
    v_attempt   smallint;
    v_tid       tid;
    v_whole     boolean;
    v_from      text;
begin
    for i in 1..3 loop
        select ctid, partition_id, attempt, penstock.members_count(low, high, members) = 1
          into v_tid, v_partition, v_attempt, v_whole
          from penstock.ready where range = v_range and penstock.has_member(low, high, members, v_position) for update;
        if found then
            delete from penstock.ready where ctid = v_tid and v_whole;
            update penstock.ready set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
             where ctid = v_tid and not v_whole;
            v_from := 'ready';
            exit;
        end if;
        select ctid, partition_id, attempt, penstock.members_count(low, high, members) = 1
          into v_tid, v_partition, v_attempt, v_whole
          from penstock.scheduled where range = v_range and penstock.has_member(low, high, members, v_position) for update;
        if found then
            delete from penstock.scheduled where ctid = v_tid and v_whole;
            update penstock.scheduled set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
             where ctid = v_tid and not v_whole;
            v_from := 'scheduled';
            exit;
        end if;
        delete from penstock.blocked where job_id = p_job returning partition_id, 1 into v_partition, v_attempt;
        if found then
            delete from penstock.dependency where child_id = p_job;
            v_from := 'blocked';
            exit;
        end if;
        perform from penstock.lease where range = v_range and penstock.has_member(low, high, members, v_position) for update;
        if found then
            insert into penstock.cancellation (job_id) values (p_job) on conflict do nothing;
            return 'running';
        end if;
        exit when penstock.outcome_of(p_job) is not null;
    end loop;
    if v_from is null then
        return null;
    end if;
    insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
    values (penstock.current_slice(), v_range, v_partition, 2, v_attempt, array[v_position]);
    insert into penstock.tally (partition_id, opened, scheduled, blocked)
    values (v_partition, -(v_from = 'ready')::int, -(v_from = 'scheduled')::int, -(v_from = 'blocked')::int);
    return 'cancelled';
end $$;

-- Makes a dead letter, or a job that waits for a time, ready now. The row's lock is the fence. Returns the
-- state it was in, or null where it is neither.
create function penstock.retry_job(p_job bigint) returns text
language plpgsql as $$
declare
    v_dead penstock.dead;
    v_queue int;
    v_priority smallint;
    v_row  record;
begin
    delete from penstock.dead where job_id = p_job returning * into v_dead;
    if v_dead.job_id is not null then
        select priority into v_priority from penstock.job_stored where id = p_job;
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, task)
        values (v_dead.partition_id, v_priority, penstock.draw_range(), p_job / 1024, p_job % 1024, p_job % 1024 + 1,
                least(v_dead.attempt + 1, 32767), v_dead.task);
        insert into penstock.tally (partition_id, dead, opened) values (v_dead.partition_id, -1, 1);
        select queue_id into v_queue from penstock.partition where id = v_dead.partition_id;
        perform penstock.wake(v_queue);
        return 'failed';
    end if;
    if penstock.reschedule_job(p_job, now()) then
        return 'scheduled';
    end if;
    return null;
end $$;

-- Moves a waiting (scheduled or ready) job to another time. False where it does not wait for one.
create function penstock.reschedule_job(p_job bigint, p_run_at timestamptz) returns boolean
language plpgsql as $$
declare
    v_position smallint := p_job % 1024;
    v_row      record;
    v_from     text;
begin
    select ctid as tid, 'scheduled' as place, partition_id, priority, range, attempt, task,
           penstock.members_count(low, high, members) = 1 as is_whole
      into v_row from penstock.scheduled
     where range = p_job / 1024 and penstock.has_member(low, high, members, v_position) for update;
    if found then
        delete from penstock.scheduled where ctid = v_row.tid and v_row.is_whole;
        update penstock.scheduled set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    else
        select ctid as tid, 'ready' as place, partition_id, priority, range, attempt, task,
               penstock.members_count(low, high, members) = 1 as is_whole
          into v_row from penstock.ready
         where range = p_job / 1024 and penstock.has_member(low, high, members, v_position) for update;
        if not found then
            return false;
        end if;
        delete from penstock.ready where ctid = v_row.tid and v_row.is_whole;
        update penstock.ready set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    end if;
    if p_run_at > now() then
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, attempt, task)
        values (p_run_at, v_row.partition_id, v_row.priority, v_row.range, v_position, v_position + 1, v_row.attempt, v_row.task);
    else
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, task)
        values (v_row.partition_id, v_row.priority, penstock.draw_range(), v_row.range, v_position, v_position + 1, v_row.attempt, v_row.task);
        perform penstock.wake(queue_id) from penstock.partition where id = v_row.partition_id;
    end if;
    insert into penstock.tally (partition_id, opened, scheduled)
    values (v_row.partition_id, (p_run_at <= now())::int - (v_row.place = 'ready')::int,
            (p_run_at > now())::int - (v_row.place = 'scheduled')::int);
    return true;
end $$;
