-- breaking: no
-- Claim: the head of ready ranges becomes leases. Touches `ready` and `lease` only, finds its rows through
-- ready_in_order, and costs the same at a backlog of ten and of ten million.

-- Ends what stands at the head of a partition and has waited longer than its queue allows. Retries and
-- rescued jobs never expire. Looks at the first rows of each priority only: the oldest stand there.
create function penstock.expire_head(p_partition int, p_max_wait interval) returns int
language plpgsql as $$
declare
    v_count int;
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
    ), gone as (
        delete from penstock.ready as r using locked as l where r.ctid = l.tid
        returning r.range, r.attempt, penstock.positions(r.low, r.high, r.members) as positions
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

-- Takes up to p_wanted jobs of one priority, in order, as leases; it stops at the first that became ready after p_until.
-- A rescued range gives only what starts at once (p_slots). Of jobs rescued twice one is given, and none while the
-- worker still has one (p_has_suspect): the poison job is among them, and must not take the others with it. The rows are locked by a statement of its own and read by the next: a row that another
-- claim cut since the first one's snapshot would be locked as it is now, but not be found again by its place in the
-- same snapshot, and so its jobs be given out twice. What went back to a range stands beside the rest of it at the same
-- pos, so all rows of the last pos are taken in: of a range the lowest go first.
-- Locks: ready rows in order, skipping those others hold.
create function penstock.take(
    p_worker bigint, p_partition int, p_priority int, p_from bigint, p_until timestamptz, p_tasks text[],
    p_slots int, p_wanted int, p_rows int, p_has_suspect boolean default false) returns setof penstock.lease
language plpgsql as $$
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
    insert into penstock.lease (worker_id, partition_id, priority, pos, range, low, high, members,
                                attempt, rescues, is_ahead, ready_at, task)
    select p_worker, partition_id, priority, pos, range, g.low, g.high,
           case when g.low = p.low and g.high = p.high then members else members & penstock.span(g.low, g.high) end,
           attempt, rescues, g.is_ahead, ready_at, task
      from parted as p
     cross join lateral (values (p.low, p.middle, false), (p.middle, p.cut, true)) as g(low, high, is_ahead)
     where g.low < g.high
     order by pos, range, g.low
    returning *;
end $$;

-- Claims up to p_slots jobs that start at once and p_ahead more that start within moments, from the
-- partitions in the order given. p_from holds ten positions a partition, one a priority: where the last
-- claim ended, so that dead rows at the head are not walked again. A waiting job rises one priority a
-- minute: the priority whose head has the least ready_at + priority * 60 s goes first. p_has_suspect: the worker
-- has a job that was rescued twice, and is given no other of that kind.
create function penstock.claim(
    p_worker bigint, p_partitions int[], p_from bigint[], p_slots int, p_ahead int,
    p_has_suspect boolean default false) returns setof penstock.lease
language plpgsql set enable_seqscan = off as $$
declare
    v_partition record;
    v_first     record;
    v_second    timestamptz;
    v_lease     penstock.lease;
    v_open      int[];
    v_taken     int := 0;
    v_rows      int;
    v_got       int;
    v_asked     int;
    v_has_suspect boolean := p_has_suspect;
begin
    for v_partition in
        select p.id, q.max_wait_seconds, g.n,
               array(select t.task from penstock.worker_task as t where t.worker_id = p_worker and t.queue_id = q.id) as tasks
          from unnest(p_partitions) with ordinality as g(id, n)
          join penstock.partition as p on p.id = g.id
          join penstock.queue as q on q.id = p.queue_id
         where not q.is_paused
         order by g.n
    loop
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
            v_asked := p_slots + p_ahead - v_taken;
            v_rows := least(v_asked, v_asked / v_first.size + 1);
            v_got := 0;
            for v_lease in
                select * from penstock.take(p_worker, v_partition.id, v_first.priority, v_first.pos_from,
                    greatest(v_second - v_first.priority * interval '60 s', v_first.ready_at), v_partition.tasks,
                    greatest(p_slots - v_taken, 0), v_asked, v_rows, v_has_suspect)
            loop
                v_got := v_got + penstock.members_count(v_lease.low, v_lease.high, v_lease.members);
                v_has_suspect := v_has_suspect or v_lease.rescues > 1;
                return next v_lease;
            end loop;
            v_taken := v_taken + v_got;
            exit when v_taken >= p_slots + p_ahead;
            if v_got = 0 then
                v_open := array_remove(v_open, v_first.priority::int);
            end if;
        end loop;
        exit when v_taken >= p_slots + p_ahead;
    end loop;
end $$;
