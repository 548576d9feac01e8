-- A turn of one job: one that had its lease for itself has succeeded, and the next is leased by its owner. That is what a
-- key does all the time whose jobs run one by one, and each waits for the turn before: it is done without what only many
-- jobs need, row by row.

-- Settles that one, as @schema@.settle_succeeded_if_leased does, and leases this one, as @schema@.lease_chosen; its lease,
-- and the children of the one that ended. Nothing, and nothing is written, where anything is not as usual: the lease is not
-- this worker's or has other jobs, the partition not its own any more or paused, the job not ready. Whoever calls it does the
-- same by those two then, which tell what is wrong. Not for queues with a total_limit or total_rate. Locks: the lease, the row
-- of the partition for share, the ready row.
create or replace function @schema@.turn_of_one(
    p_worker bigint, p_worker_name text, p_lease bigint, p_lease_token bigint, p_ended bigint, p_age bigint, p_run bigint, p_result text,
    p_token bigint, p_server text, p_partition int, p_owner_epoch bigint, p_job bigint, p_is_ahead boolean)
returns table (lease_id bigint, its_priority smallint, its_pos bigint, its_attempt smallint, its_rescues smallint,
               its_ready_at timestamptz, its_task text, children bigint[])
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_position constant smallint := p_job % 1024;
    v_held  record;
    v_ready record;
begin
    select l.partition_id, l.attempt into v_held
      from @schema@.lease as l
     where l.id = p_lease and l.worker_id = p_worker and l.token = p_lease_token and l.range = p_ended / 1024
       and @schema@.has_member(l.low, l.high, l.members, (p_ended % 1024)::int)
       and @schema@.members_count(l.low, l.high, l.members) = 1
       for update;
    if not found or p_server is distinct from @schema@.this_server() then
        return;
    end if;
    -- Locked by one statement and looked at by the next, as in @schema@.owned_partitions.
    perform from @schema@.partition as p where p.id = p_partition for share;
    perform from @schema@.partition as p
      join @schema@.queue as q on q.id = p.queue_id and not q.is_paused
     where p.id = p_partition and p.owner_id = p_worker and p.owner_epoch = p_owner_epoch
       and exists (select from @schema@.worker as w where w.id = p_worker);
    if not found then
        return;
    end if;
    select r.ctid as tid, r.priority, r.pos, r.low, r.high, r.members, r.attempt, r.rescues, r.ready_at, r.epoch, r.task into v_ready
      from @schema@.ready as r
     where r.range = p_job / 1024 and r.partition_id = p_partition
       and @schema@.has_member(r.low, r.high, r.members, v_position)
       for update;
    if not found then
        return;
    end if;

    if @schema@.members_count(v_ready.low, v_ready.high, v_ready.members) = 1 then
        delete from @schema@.ready as r where r.ctid = v_ready.tid;
    elsif v_ready.members is null and v_ready.low = v_position then
        update @schema@.ready as r set low = v_position + 1 where r.ctid = v_ready.tid;
    else
        update @schema@.ready as r
           set members = set_bit(coalesce(v_ready.members, @schema@.span(v_ready.low, v_ready.high)), v_position, 0)
         where r.ctid = v_ready.tid;
    end if;
    delete from @schema@.idle_partition as i where i.partition_id = p_partition;
    delete from @schema@.lease as l where l.id = p_lease;
    insert into @schema@.finished (slice, range, partition_id, outcome, attempt, worker, positions, start_ages, run_times, results)
    values (@schema@.current_slice(), p_ended / 1024, v_held.partition_id, 0, v_held.attempt, p_worker_name,
            array[(p_ended % 1024)::smallint], array[p_age], array[p_run],
            case when p_result is not null then array[p_result::json] end);
    insert into @schema@.tally (partition_id, opened, completed) values (v_held.partition_id, -1, 1);
    children := array(select d.child_id from @schema@.dependency as d where d.parent_id = p_ended order by d.child_id);
    lease_id := nextval('@schema@.lease_number');
    insert into @schema@.lease (id, token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues, is_ahead,
                                ready_at, epoch, task)
    values (lease_id, p_token, p_worker, p_partition, v_ready.priority, v_ready.pos, p_job / 1024, v_position, v_position + 1,
            v_ready.attempt, v_ready.rescues, p_is_ahead, v_ready.ready_at, v_ready.epoch, v_ready.task);
    its_priority := v_ready.priority;
    its_pos := v_ready.pos;
    its_attempt := v_ready.attempt;
    its_rescues := v_ready.rescues;
    its_ready_at := v_ready.ready_at;
    its_task := v_ready.task;
    return next;
end $$;
