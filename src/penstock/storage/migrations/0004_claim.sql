-- breaking: no
-- Claim: the head of ready ranges becomes leases. Touches `ready` and `lease` only, finds its rows through
-- ready_in_order, and costs the same at a backlog of ten and of ten million.

-- Ends what stands at the head of a partition and has waited longer than its queue allows. Retries and
-- rescued jobs never expire. Looks at the first rows of each priority only: the oldest stand there. How many jobs it
-- moved: one whose end is refused is set aside.
create function penstock.expire_head(p_partition int, p_max_wait interval) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows tid[];
begin
    -- Only what is late is locked: a lock on the others would hide them from the claims beside this one.
    with late as materialized (
        select r.tid from generate_series(0, 9) as level(priority)
         cross join lateral (
               select ctid as tid, attempt, rescues, ready_at from penstock.ready
                where partition_id = p_partition and not is_parked and priority = level.priority
                order by pos limit 100) as r
         where r.attempt = 1 and r.rescues = 0 and r.ready_at < now() - p_max_wait
    ), locked as materialized (
        select ctid as tid from penstock.ready where ctid = any (array(select tid from late)) for update skip locked
    )
    select array(select tid from locked) into v_rows;
    if v_rows = '{}' then
        return 0;
    end if;
    return penstock.expire_some(p_partition, v_rows);
end $$;

-- Ends these rows, which the caller has locked; where that is refused, by halves, then job by job. A job that is refused
-- alone is set aside, and where not even that can be written it stays where it is, and is told. Only who has something to
-- end pays for a block that catches.
create function penstock.expire_some(p_partition int, p_rows tid[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_error text;
    v_job   bigint;
begin
    begin
        return penstock.expire_rows(p_partition, p_rows);
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    if cardinality(p_rows) = 1 then
        p_rows := penstock.take_ready_apart(p_rows[1]);
    end if;
    if cardinality(p_rows) > 1 then
        return penstock.expire_some(p_partition, p_rows[:cardinality(p_rows) / 2])
             + penstock.expire_some(p_partition, p_rows[cardinality(p_rows) / 2 + 1:]);
    end if;
    select range * 1024 + low into v_job from penstock.ready where ctid = p_rows[1];
    begin
        return (select count(*) from penstock.set_aside(array[v_job], array['its end (expired) cannot be written: ' || v_error]));
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform penstock.note_left('expire', v_job, v_error);
        return 0;
    end;
end $$;

-- Ends these rows, all or none; how many jobs.
create function penstock.expire_rows(p_partition int, p_rows tid[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with gone as (
        delete from penstock.ready where ctid = any (p_rows)
        returning range, attempt, penstock.positions(low, high, members) as positions
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), range, p_partition, 4, attempt, positions from gone
        returning cardinality(positions) as n
    ), counted as (
        insert into penstock.tally (partition_id, opened)
        select p_partition, -sum(n) from ended having sum(n) > 0
    )
    select coalesce(sum(n), 0) into v_count from ended;
    return v_count;
end $$;

-- Gives each job of a ready row a row of its own, like it and in its place; where those are.
create function penstock.take_ready_apart(p_row tid) returns tid[]
language sql
begin atomic
    with gone as (
        delete from penstock.ready where ctid = p_row returning *
    ), parts as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, ready_at, changed, epoch, task)
        select partition_id, priority, pos, range, m, m + 1, attempt, rescues, ready_at, changed, epoch, task
          from gone cross join lateral unnest(penstock.positions(low, high, members)) as m
        returning ctid
    )
    select array(select ctid from parts);
end;

-- Takes up to p_wanted jobs of one priority, in order, as leases; it stops at the first that became ready after p_until.
-- A rescued range gives only what starts at once (p_slots). Of jobs rescued twice one is given, and none while the
-- worker still has one (p_has_suspect): the poison job is among them, and must not take the others with it. The rows are locked by a statement of its own and read by the next: a row that another
-- claim cut since the first one's snapshot would be locked as it is now, but not be found again by its place in the
-- same snapshot, and so its jobs be given out twice. What went back to a range stands beside the rest of it at the same
-- pos, so all rows of the last pos are taken in: of a range the lowest go first.
-- Locks: ready rows in order, skipping those others hold.
create function penstock.take(
    p_worker bigint, p_token bigint, p_partition int, p_priority int, p_from bigint, p_until timestamptz, p_tasks text[],
    p_slots int, p_wanted int, p_rows int, p_has_suspect boolean default false) returns setof penstock.lease
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows tid[];
begin
    with head as materialized (
        select ctid as tid, pos from penstock.ready
         where partition_id = p_partition and not is_parked and priority = p_priority and pos >= p_from
           and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
         order by pos limit p_rows for update skip locked
    ), beside as materialized (
        select ctid as tid from penstock.ready
         where partition_id = p_partition and not is_parked and priority = p_priority
           and pos = (select max(pos) from head) and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
           for update skip locked
    )
    select array(select tid from head union select tid from beside) into v_rows;

    return query
    with head as materialized (
        select ctid as tid, * from penstock.ready where ctid = any (v_rows)
    ), counted as (
        select h.*, penstock.members_count(low, high, members) as n,
               sum(penstock.members_count(low, high, members)) over (order by pos, range, low)
                   - penstock.members_count(low, high, members) as before,
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
        select r.*, case when n_taken = n then high
                         when members is null then (low + n_taken)::smallint
                         else (penstock.positions(low, high, members))[n_taken + 1] end as cut
          from reached as r where is_reached and n_taken > 0
    ), parted as (
        -- What starts at once and what follows are leases of their own: after a crash only the first is sure to have begun.
        select c.*, case when before >= p_slots then low
                         when before + n_taken <= p_slots then c.cut
                         when members is null then (low + p_slots - before)::smallint
                         else (penstock.positions(low, high, members))[p_slots - before + 1] end as middle
          from cut as c
    ), whole as (
        delete from penstock.ready where ctid = any (array(select tid from cut as c where c.cut = c.high))
    ), rest as (
        update penstock.ready as r set low = c.cut, members = c.members & penstock.span(c.cut, c.high)
          from cut as c where r.ctid = c.tid and c.cut < c.high
           and r.ctid = any (array(select tid from cut as c where c.cut < c.high))
    )
    insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, members,
                                attempt, rescues, is_ahead, ready_at, task)
    select p_token, p_worker, partition_id, priority, pos, range, g.low, g.high,
           case when g.low = p.low and g.high = p.high then members else members & penstock.span(g.low, g.high) end,
           attempt, rescues, g.is_ahead, ready_at, task
      from parted as p
     cross join lateral (values (p.low, p.middle, false), (p.middle, p.cut, true)) as g(low, high, is_ahead)
     where g.low < g.high
     order by pos, range, g.low
    returning *;
end $$;

-- The gate of a partition with a limit or a rate. Whoever enters holds it until its commit, so that counting and taking
-- are one act; what is counted is read by a statement after the lock.

-- Jobs under leases in a partition. The table is read as a whole: leases are few, their index is long with dead entries.
create function penstock.running_in(p_partition int) returns bigint
language plpgsql set enable_seqscan = on set enable_indexscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    return (select coalesce(sum(penstock.members_count(low, high, members)), 0) from penstock.lease
             where partition_id = p_partition);
end $$;

-- What the bucket of a rate holds: it fills evenly, up to a second's worth of starts and at least one, and was left so
-- that it is full at p_full_at.
create function penstock.tokens(p_rate double precision, p_full_at timestamptz, p_now timestamptz) returns double precision
language sql immutable parallel safe
begin atomic
    select greatest(1, floor(p_rate)) - p_rate * greatest(0, extract(epoch from p_full_at - p_now)::double precision);
end;

-- Enters a partition's gate: how many its limit lets start (none, while an earlier place of it goes on), how many its rate
-- (null: any number), and when the rate's bucket is full (now, where it is already). Whoever holds a gate of a higher number does not wait at this one: two
-- would wait for each other. Locks: the partition's row, against nobody but those who enter.
create function penstock.enter_gate(
    p_partition int, p_may_wait boolean,
    out is_inside boolean, out free int, out tokens int, out rate double precision, out full_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_may_wait then
        perform from penstock.partition where id = p_partition for no key update;
    else
        perform from penstock.partition where id = p_partition for no key update skip locked;
    end if;
    is_inside := found;
    if is_inside and penstock.is_still(p_partition) then
        free := 0;
    elsif is_inside then
        select q.running_limit - case when q.running_limit is not null then penstock.running_in(p.id) end, q.rate,
               greatest(clock_timestamp(), (select s.full_at from penstock.spent as s
                                             where s.partition_id = p.id order by s.id desc limit 1))
          into free, rate, full_at
          from penstock.partition as p join penstock.queue as q on q.id = p.queue_id where p.id = p_partition;
        tokens := floor(penstock.tokens(rate, full_at, clock_timestamp()));
    end if;
end $$;

-- Wakes who waits for a place in these partitions, where they have a limit and something to do: jobs ended there, and
-- whoever settled them takes no others. It enters the gates: a worker that looks and falls asleep at the same time
-- either sees the place or is seen. Locks: the partitions' rows by number.
create function penstock.wake_gates(p_partitions int[], p_may_wait boolean default true) returns void
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    if p_may_wait then
        perform from penstock.partition where id = any (p_partitions) order by id for no key update;
    end if;
    perform penstock.wake(queue_id) from (
        select distinct p.queue_id
          from penstock.partition as p join penstock.queue as q on q.id = p.queue_id
         cross join generate_series(0, 9) as level(priority)
         cross join lateral (
               select from penstock.ready as r
                where r.partition_id = p.id and not r.is_parked and r.priority = level.priority
                order by r.pos limit 1) as head
         where p.id = any (p_partitions) and q.running_limit is not null and not q.is_owned and not q.is_paused) as waiting;
end $$;

-- Claims up to p_slots jobs that start at once and p_ahead more that start within moments, from the
-- partitions in the order given; the leases bear p_token, and only who names it can end them. p_from holds ten positions a partition, one a priority: where the last
-- claim ended, so that dead rows at the head are not walked again. A waiting job rises one priority a
-- minute: the priority whose head has the least ready_at + priority * 60 s goes first. p_has_suspect: the worker
-- has a job that was rescued twice, and is given no other of that kind.
-- A partition with a limit or a rate gives what its gate lets through, and nothing ahead; only to a worker whose slots
-- other queues keep busy it gives ahead when it is first in turn. p_settled are partitions where the same transaction
-- ended jobs: places that are not taken again are offered to others. A last row without a number is no lease: it
-- says by its ready_at from when on more may start (a rate, or a gate somebody is in).
-- Partitions with an owner are passed over. Locks: gates, then ready rows in order, skipping those others hold.
create function penstock.claim(
    p_worker bigint, p_token bigint, p_partitions int[], p_from bigint[], p_slots int, p_ahead int,
    p_has_suspect boolean default false, p_settled int[] default null) returns setof penstock.lease
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_partition record;
    v_first     record;
    v_second    timestamptz;
    v_lease     penstock.lease;
    v_open      int[];
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
    v_offered   int[] := p_settled;
    v_opens_at  timestamptz;
begin
    for v_partition in
        select p.id, q.max_wait_seconds, q.running_limit is not null or q.rate is not null as is_gated, g.n,
               array(select t.task from penstock.worker_task as t where t.worker_id = p_worker and t.queue_id = q.id) as tasks
          from unnest(p_partitions) with ordinality as g(id, n)
          join penstock.partition as p on p.id = g.id
          join penstock.queue as q on q.id = p.queue_id
         where not q.is_paused and not q.is_owned and p.shut_by is null
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
            while penstock.expire_head(v_partition.id, make_interval(secs => v_partition.max_wait_seconds)) > 0 loop
            end loop;
        end if;
        v_open := '{0,1,2,3,4,5,6,7,8,9}';
        loop
            v_first := null;
            v_second := 'infinity';
            for v_first in
                select level.priority, r.ready_at, r.high - r.low as size, r.ready_at + level.priority * interval '60 s' as rank,
                       p_from[(v_partition.n - 1) * 10 + level.priority + 1] as pos_from,
                       lead(r.ready_at + level.priority * interval '60 s')
                           over (order by r.ready_at + level.priority * interval '60 s', level.priority) as second_rank
                  from unnest(v_open) as level(priority)
                 cross join lateral (
                       select ready_at, low, high from penstock.ready
                        where partition_id = v_partition.id and not is_parked and priority = level.priority
                          and pos >= p_from[(v_partition.n - 1) * 10 + level.priority + 1] and task = any (v_partition.tasks)
                        order by pos limit 1) as r
                 order by rank, level.priority limit 1
            loop
                v_second := coalesce(v_first.second_rank, 'infinity');
            end loop;
            exit when v_first is null or v_first.priority is null;
            if v_partition.is_gated and not v_is_inside then
                v_gate := penstock.enter_gate(v_partition.id, not v_partition.id < any (v_gates));
                v_is_inside := v_gate.is_inside;
                if not v_is_inside then
                    v_opens_at := least(v_opens_at, clock_timestamp());
                    exit;
                end if;
                v_gates := v_gates || v_partition.id;
                v_most := least(v_most, v_taken + least(v_gate.free, v_gate.tokens));
                exit when v_taken >= v_most;
                -- What was first before the gate may be gone.
                continue;
            end if;
            v_asked := v_most - v_taken;
            v_rows := least(v_asked, v_asked / v_first.size + 1);
            v_got := 0;
            v_leases := 0;
            for v_lease in
                select * from penstock.take(p_worker, p_token, v_partition.id, v_first.priority, v_first.pos_from,
                    greatest(v_second - v_first.priority * interval '60 s', v_first.ready_at), v_partition.tasks,
                    greatest(least(p_slots, v_most) - v_taken, 0), v_asked, v_rows, v_has_suspect)
            loop
                v_got := v_got + penstock.members_count(v_lease.low, v_lease.high, v_lease.members);
                v_leases := v_leases + 1;
                v_has_suspect := v_has_suspect or v_lease.rescues > 1;
                return next v_lease;
            end loop;
            v_taken := v_taken + v_got;
            exit when v_taken >= v_most;
            -- The only priority that had anything gave fewer rows than it might have: nothing is left to look for.
            exit when v_second = 'infinity' and v_leases < v_rows and not v_has_suspect;
            if v_got = 0 then
                v_open := array_remove(v_open, v_first.priority::int);
            end if;
        end loop;
        if v_is_inside then
            v_got := v_taken - v_before;
            if v_gate.rate is not null then
                v_gate.full_at := v_gate.full_at + ceil(v_got * 1e6 / v_gate.rate) * interval '1 microsecond';
                if v_got > 0 then
                    insert into penstock.spent (partition_id, full_at) values (v_partition.id, v_gate.full_at);
                end if;
                if v_got >= v_gate.tokens and (v_gate.free is null or v_gate.free > v_got) then
                    v_opens_at := least(v_opens_at, v_gate.full_at
                        - (greatest(1, floor(v_gate.rate)) - 1) / v_gate.rate * interval '1 second');
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
        perform penstock.wake_gates(v_offered, v_gates = '{}');
    end if;
end $$;

-- Behind a transaction pooler a turn whose answer was lost may still be under way, or not even have begun. So each turn
-- holds the number of its worker's turns, and who finds out what became of one changes it first.

-- Holds the number for this transaction; refused (40001) where it is another by now. Locks: the row, shared.
create function penstock.hold_turn(p_worker bigint, p_number bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from penstock.turn where worker_id = p_worker and number = p_number for share;
    if not found then
        raise exception using errcode = '40001',
            message = format('this turn of worker %s was given up: its answer was taken for lost', p_worker);
    end if;
end $$;

-- Gives a worker's turns another number, which is returned. Waits a moment for one that is under way (55P03).
create function penstock.renew_turns(p_worker bigint) returns bigint
language plpgsql set lock_timeout = '1s' set search_path = pg_catalog, pg_temp as $$
declare
    v_number bigint;
begin
    insert into penstock.turn as t (worker_id, number) values (p_worker, 1)
    on conflict (worker_id) do update set number = t.number + 1 returning number into v_number;
    return v_number;
end $$;
