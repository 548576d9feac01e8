-- Loads are paused and resumed.

-- Takes the ready jobs of a load out of the order. Locks: their partitions' rows where owners read them, their ready rows.
create or replace function @schema@.suspend_load(p_load bigint) returns bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_count bigint;
begin
    perform @schema@.read_anew(array(
        select distinct r.partition_id from @schema@.load_range as l join @schema@.ready as r on r.range = l.range
         where l.load_id = p_load and r.epoch is not null));
    with gone as (
        delete from @schema@.ready as r using @schema@.load_range as l
         where l.load_id = p_load and r.range = l.range
        returning r.pos, r.partition_id, r.priority, r.range, r.low, r.high, r.members, r.attempt, r.rescues, r.epoch, r.task
    ), suspended as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, members, attempt, rescues, epoch, task)
        select @schema@.paused_at(pos), partition_id, priority, range, low, high, members, attempt, rescues, epoch, task from gone
    ), counted as (
        insert into @schema@.tally (partition_id, opened, scheduled)
        select partition_id, -sum(@schema@.members_count(low, high, members)), sum(@schema@.members_count(low, high, members))
          from gone group by partition_id
    )
    select coalesce(sum(@schema@.members_count(low, high, members)), 0) into v_count from gone;
    return v_count;
end $$;

-- The same for every load that is paused: what came back to the order since (a retry, what a dead worker held).
create or replace function @schema@.suspend_paused_loads() returns bigint
language sql
begin atomic
    -- Whoever resumes one of them waits until this is done, and brings back what this took out.
    with paused as materialized (
        select id from @schema@.load where is_paused order by id for share
    )
    select coalesce(sum(@schema@.suspend_load(id)), 0)::bigint from paused;
end;

-- Lets the jobs of a load come back, behind what is ready by now, in the order they had.
create or replace function @schema@.resume_load(p_load bigint) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    update @schema@.load set is_paused = false where id = p_load;
    update @schema@.scheduled as s
       set due_at = @schema@.resumed_at(s.due_at)
      from @schema@.load_range as l
     where l.load_id = p_load and s.range = l.range and s.due_at >= @schema@.paused_from();
$$;
