-- Claim: the head of ready ranges becomes leases. Touches `ready` and `lease` only, finds its rows through
-- ready_in_order, and costs the same at a backlog of ten and of ten million.

-- Takes up to p_wanted jobs of one priority, in order, as leases; it stops at the first that became ready after p_until.
-- A rescued range gives only what starts at once (p_slots). Of jobs rescued twice one is given, and none while the
-- worker still has one (p_has_suspect): the poison job is among them, and must not take the others with it.
-- The rows are locked by a statement of its own and read by the next: a row that another claim cut since the first one's
-- snapshot would be locked as it is now, but not be found again by where it stands in the same snapshot, and so its jobs
-- be given out twice. What went back to a range stands beside the rest of it at the same `pos`, so all rows of the last
-- `pos` are taken in: of a range the lowest go first.
-- Locks: ready rows in order, skipping those that others have locked.
create or replace function @schema@.take(
    p_worker bigint, p_token bigint, p_partition int, p_priority int, p_start bigint, p_until timestamptz, p_tasks text[],
    p_slots int, p_wanted int, p_rows int, p_has_suspect boolean default false) returns setof @schema@.claimed
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows tid[];
begin
    with head as materialized (
        select ctid as tid, pos from @schema@.ready
         where partition_id = p_partition and not is_parked and priority = p_priority and pos >= p_start
           and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
         order by pos limit p_rows for update skip locked
    ), beside as materialized (
        select ctid as tid from @schema@.ready
         where partition_id = p_partition and not is_parked and priority = p_priority
           and pos = (select max(pos) from head) and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
           for update skip locked
    )
    select array(select tid from head union select tid from beside) into v_rows;

    return query
    with head as materialized (
        select ctid as tid, partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at, task
          from @schema@.ready where ctid = any (v_rows)
    ), counted as (
        select h.*, @schema@.members_count(low, high, members) as n,
               sum(@schema@.members_count(low, high, members)) over (order by pos, range, low)
                   - @schema@.members_count(low, high, members) as before,
               count(*) filter (where rescues >= 2) over (order by pos, range, low) as suspects
          from head as h
    ), capped as (
        select c.*, case when ready_at <= p_until then
                         least(n, case when rescues = 0 then p_wanted when rescues = 1 then p_slots
                                       when suspects = 1 then least(1 + before, p_slots) else before end - before)
                         else 0 end::int as n_taken
          from counted as c
    ), reached as (
        select c.*, coalesce(bool_and(n_taken = n) over (order by pos, range, low rows between unbounded preceding and 1 preceding), true) as is_reached
          from capped as c
    ), cut as (
        select w.*, case when n_taken = n then high
                         when members is null then (low + n_taken)::smallint
                         else (@schema@.positions(low, high, members))[n_taken + 1] end as cut
          from reached as w where is_reached and n_taken > 0
    ), parted as (
        -- What starts at once and what follows are leases of their own: after a crash only the first is sure to have begun.
        select c.*, case when before >= p_slots then low
                         when before + n_taken <= p_slots then c.cut
                         when members is null then (low + p_slots - before)::smallint
                         else (@schema@.positions(low, high, members))[p_slots - before + 1] end as middle
          from cut as c
    ), whole as (
        delete from @schema@.ready where ctid = any (array(select tid from cut as c where c.cut = c.high))
    ), rest as (
        update @schema@.ready as r set low = c.cut, members = c.members & @schema@.span(c.cut, c.high)
          from cut as c where r.ctid = c.tid and c.cut < c.high
           and r.ctid = any (array(select tid from cut as c where c.cut < c.high))
    )
    insert into @schema@.lease (token, worker_id, partition_id, priority, pos, range, low, high, members,
                                attempt, rescues, is_ahead, ready_at, task)
    select p_token, p_worker, partition_id, priority, pos, range, g.low, g.high,
           case when g.low = p.low and g.high = p.high then members else members & @schema@.span(g.low, g.high) end,
           attempt, rescues, g.is_ahead, ready_at, task
      from parted as p
     cross join lateral (values (p.low, p.middle, false), (p.middle, p.cut, true)) as g(low, high, is_ahead)
     where g.low < g.high
     order by pos, range, g.low
    returning id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at, task;
end $$;

-- Claims up to p_slots jobs that start at once and p_ahead more that start within moments, from the
-- partitions in the order given; the leases bear p_token, and only who names it can end them. p_starts holds ten values of
-- `pos` a partition, one a priority: where the last claim ended, so that dead rows at the head are not walked again. A
-- waiting job rises one priority a minute: the priority whose head has the least ready_at + priority * 60 s goes first. p_has_suspect: the worker
-- has a job that was rescued twice, and is given no other of that kind.
-- A partition with a limit or a rate gives what its gate lets through, and nothing ahead; only to a worker whose slots
-- other queues keep busy it gives ahead when it is first in turn. p_freed are partitions where the same transaction
-- ended jobs: room that is not taken again is offered to others. A last row without a number is no lease: it
-- says by its ready_at from when on more may start (a rate, or a gate somebody is in).
-- Partitions with an owner are passed over. Locks: gates, then ready rows in order, skipping those that others have locked.
create or replace function @schema@.claim(
    p_worker bigint, p_token bigint, p_partitions int[], p_starts bigint[], p_slots int, p_ahead int,
    p_has_suspect boolean default false, p_freed int[] default null) returns setof @schema@.claimed
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_partition record;
    v_first     record;
    v_second    timestamptz;
    v_lease     @schema@.claimed;
    v_levels    int[];
    v_taken     int := 0;
    v_rows      int;
    v_got       int;
    v_leases    int;
    v_asked     int;
    v_has_suspect boolean := p_has_suspect;
    -- How many to have taken in all when this partition is done, how many when it began, and what its gate says.
    v_most      int;
    v_before    int;
    v_gate      record;
    v_is_inside boolean;
    v_gates     int[] := '{}';
    v_offered   int[] := p_freed;
    v_opens_at  timestamptz;
begin
    for v_partition in
        select p.id, q.max_wait_seconds, q.running_limit is not null or q.rate is not null as is_gated, g.n,
               array(select t.task from @schema@.worker_task as t where t.worker_id = p_worker and t.queue_id = q.id) as tasks
          from unnest(p_partitions) with ordinality as g(id, n)
          join @schema@.partition as p on p.id = g.id
          join @schema@.queue as q on q.id = p.queue_id
         where not q.is_paused and not q.is_owned and p.state <> 'shut'
         order by g.n
    loop
        v_most := p_slots + p_ahead;
        v_before := v_taken;
        v_is_inside := false;
        if v_partition.is_gated then
            v_most := case when p_slots = 0 and v_partition.n = 1 and cardinality(p_partitions) > 1 then p_ahead else p_slots end;
            continue when v_taken >= v_most;
        end if;
        if v_partition.max_wait_seconds is not null then
            while @schema@.expire_head(v_partition.id, make_interval(secs => v_partition.max_wait_seconds)) > 0 loop
            end loop;
        end if;
        v_levels := '{0,1,2,3,4,5,6,7,8,9}';
        loop
            v_first := null;
            v_second := 'infinity';
            for v_first in
                select level.priority, r.ready_at, r.high - r.low as size, r.ready_at + level.priority * interval '60 s' as rank,
                       p_starts[(v_partition.n - 1) * 10 + level.priority + 1] as start,
                       lead(r.ready_at + level.priority * interval '60 s')
                           over (order by r.ready_at + level.priority * interval '60 s', level.priority) as second_rank
                  from unnest(v_levels) as level(priority)
                 cross join lateral (
                       select ready_at, low, high from @schema@.ready
                        where partition_id = v_partition.id and not is_parked and priority = level.priority
                          and pos >= p_starts[(v_partition.n - 1) * 10 + level.priority + 1] and task = any (v_partition.tasks)
                        order by pos limit 1) as r
                 order by rank, level.priority limit 1
            loop
                v_second := coalesce(v_first.second_rank, 'infinity');
            end loop;
            exit when v_first is null or v_first.priority is null;
            if v_partition.is_gated and not v_is_inside then
                v_gate := @schema@.enter_gate(v_partition.id, not v_partition.id < any (v_gates));
                v_is_inside := v_gate.is_inside;
                if not v_is_inside then
                    v_opens_at := least(v_opens_at, clock_timestamp());
                    exit;
                end if;
                v_gates := v_gates || v_partition.id;
                v_most := least(v_most, v_taken + least(v_gate.free, v_gate.bucket_tokens));
                exit when v_taken >= v_most;
                -- What was first before the gate may be gone.
                continue;
            end if;
            v_asked := v_most - v_taken;
            v_rows := least(v_asked, v_asked / v_first.size + 1);
            v_got := 0;
            v_leases := 0;
            for v_lease in
                select t.id, t.partition_id, t.priority, t.pos, t.range, t.low, t.high, t.members,
                       t.attempt, t.rescues, t.is_ahead, t.ready_at, t.task
                  from @schema@.take(p_worker, p_token, v_partition.id, v_first.priority, v_first.start,
                    greatest(v_second - v_first.priority * interval '60 s', v_first.ready_at), v_partition.tasks,
                    greatest(least(p_slots, v_most) - v_taken, 0), v_asked, v_rows, v_has_suspect) as t
            loop
                v_got := v_got + @schema@.members_count(v_lease.low, v_lease.high, v_lease.members);
                v_leases := v_leases + 1;
                v_has_suspect := v_has_suspect or v_lease.rescues > 1;
                return next v_lease;
            end loop;
            v_taken := v_taken + v_got;
            exit when v_taken >= v_most;
            -- The only priority that had anything gave fewer rows than it might have: nothing is left to look for.
            exit when v_second = 'infinity' and v_leases < v_rows and not v_has_suspect;
            if v_got = 0 then
                v_levels := array_remove(v_levels, v_first.priority::int);
            end if;
        end loop;
        if v_is_inside then
            v_got := v_taken - v_before;
            if v_gate.rate is not null then
                v_gate.full_at := v_gate.full_at + ceil(v_got * 1e6 / v_gate.rate) * interval '1 microsecond';
                if v_got > 0 then
                    insert into @schema@.spent (partition_id, full_at) values (v_partition.id, v_gate.full_at);
                end if;
                if v_got >= v_gate.bucket_tokens and (v_gate.free is null or v_gate.free > v_got) then
                    v_opens_at := least(v_opens_at, v_gate.full_at
                        - (@schema@.burst_of(v_gate.rate) - 1) / v_gate.rate * interval '1 second');
                end if;
            end if;
            if v_got >= v_gate.free or v_taken < p_slots then
                v_offered := array_remove(v_offered, v_partition.id);
            end if;
        end if;
        exit when v_taken >= p_slots + p_ahead;
    end loop;
    if v_opens_at is not null and v_taken < p_slots then
        v_lease := null;
        v_lease.ready_at := v_opens_at;
        return next v_lease;
    end if;
    if cardinality(v_offered) > 0 then
        perform @schema@.wake_gates(v_offered, v_gates = '{}');
    end if;
end $$;
