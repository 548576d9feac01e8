-- Claim: the head of ready ranges becomes leases. Touches `ready` and `lease` only, finds its rows through
-- ready_in_order, and costs the same at a backlog of ten and of ten million.

-- Takes up to p_wanted jobs of one priority, in order, as leases; it stops at the first that became ready after p_until.
-- A rescued range gives only what starts at once (p_slots). Of jobs rescued twice one is given, and none while the
-- worker still has one (p_has_suspect): the poison job is among them, and must not take the others with it.
-- The rows are locked by a statement of its own and read by the next: a row that another claim cut since the first one's
-- snapshot would be locked as it is now, but not be found again by where it stands in the same snapshot, and so its jobs
-- be given out twice. What went back to a range stands beside the rest of it at the same `pos`, so all rows of the last
-- `pos` are taken in: of a range the lowest go first.
-- p_batch: what is taken is a batch, whose leases bear that number. p_is_fresh: only of what has never failed and was never
-- rescued, or only of what has or was; null: of both. p_last: no row behind this `pos`, so that who wants only some of
-- the tasks does not walk through a backlog of the others.
-- Locks: ready rows in order, skipping those that others have locked.
create or replace function @schema@.take(
    p_worker bigint, p_token bigint, p_partition int, p_priority int, p_start bigint, p_until timestamptz, p_tasks text[],
    p_slots int, p_wanted int, p_rows int, p_has_suspect boolean default false, p_batch bigint default null,
    p_is_fresh boolean default null, p_last bigint default 9223372036854775807) returns setof @schema@.claimed
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows tid[];
begin
    with head as materialized (
        select ctid as tid, pos from @schema@.ready
         where partition_id = p_partition and not is_parked and priority = p_priority
           and pos between p_start and p_last and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
           and (p_is_fresh is null or p_is_fresh = (attempt = 1 and rescues = 0))
         order by pos limit p_rows for update skip locked
    ), beside as materialized (
        select ctid as tid from @schema@.ready
         where partition_id = p_partition and not is_parked and priority = p_priority
           and pos = (select max(pos) from head) and task = any (p_tasks) and (rescues < 2 or not p_has_suspect)
           and (p_is_fresh is null or p_is_fresh = (attempt = 1 and rescues = 0))
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
                                attempt, rescues, is_ahead, ready_at, task, batch)
    select p_token, p_worker, partition_id, priority, pos, range, g.low, g.high,
           case when g.low = p.low and g.high = p.high then members else members & @schema@.span(g.low, g.high) end,
           attempt, rescues, g.is_ahead, ready_at, task, p_batch
      from parted as p
     cross join lateral (values (p.low, p.middle, false), (p.middle, p.cut, true)) as g(low, high, is_ahead)
     where g.low < g.high
     order by pos, range, g.low
    returning id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at, task, batch;
end $$;

-- Claims up to p_slots jobs that start at once and p_ahead more that start within moments, from the
-- partitions between each of p_firsts and its p_lasts, by number, in the order given; the leases bear p_token, and only who names it can end them.
-- Partitions in which nothing is ready are not looked at: it costs what there is to do, not what is declared. p_starts holds ten values of
-- `pos` for each of p_started, one a priority: where the last claim ended in partitions that much was taken from, so that dead rows at the head are not walked again. A
-- waiting job rises one priority a minute: the priority whose head has the least ready_at + priority * 60 s goes first. p_has_suspect: the worker
-- has a job that was rescued twice, and is given no other of that kind.
-- A partition with a limit, a rate, permits or a total_rate's tokens gives what its gate lets through, and nothing ahead; only to a worker whose slots
-- other queues keep busy it gives ahead when it is first in turn. p_freed are partitions where the same transaction
-- ended jobs: room that is not taken again is offered to others. A last row without a number is no lease: it
-- says by its ready_at from when on more may start (a rate, a gate somebody is in, or a batch that waits to be fuller).
-- p_caps says, by queue, how many more jobs of it the worker may take.
-- p_batch_sizes: by queue and task, how many jobs the worker's handler is given together, and how many seconds the first
-- of them waits for the others. A batch counts as one job where slots and caps are counted, and as its jobs at a gate. It is of
-- one partition, priority and task, and passes over what is of others. What failed or was rescued is in no batch: if it was
-- one of its jobs that did it, that one must be found. Each time only so many rows are looked at, of whatever task: at
-- a large backlog a batch is of what stands near its first job. One that waits to be fuller is passed over as far as it
-- was looked for; what stands behind that is looked at as if it were not there.
-- Partitions with an owner are passed over. Locks: gates, then ready rows in order, skipping those that others have locked.
-- Index: ready_in_order, the primary key of partition.
create or replace function @schema@.claim(
    p_worker bigint, p_token bigint, p_firsts int[], p_lasts int[], p_slots int, p_ahead int,
    p_has_suspect boolean default false, p_freed int[] default null, p_caps jsonb default null,
    p_batch_sizes jsonb default null, p_started int[] default null, p_starts bigint[] default null)
returns setof @schema@.claimed
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    -- Which of the spans is looked at, from which partition on; the next with anything ready, or that much was taken from.
    v_span      int := 1;
    v_next      int := p_firsts[1];
    v_id        int;
    v_partition record;
    v_is_first  boolean := true;
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
    -- How many to have taken in all when this partition is done, and how many when it began, with a batch as one; how many
    -- jobs of it were taken, how many its gate lets start (null: any number), and what else that says.
    v_most      int;
    v_before    int;
    v_jobs      int;
    v_room      int;
    v_gate      record;
    v_is_inside boolean;
    v_gates     int[] := '{}';
    v_offered   int[] := p_freed;
    v_opens_at  timestamptz;
    -- By queue, how many more of it may be taken, and of the partition's own; null where it has no cap.
    v_caps      jsonb := p_caps;
    v_left      int;
    -- The tasks to look for, and of them what is taken next: whether only what is fresh of it, and as which batch.
    v_known     text[];
    v_tasks     text[];
    v_is_fresh  boolean;
    v_batch     bigint;
    v_size      int;
    v_wait      interval;
    -- How many rows are looked at, up to where they stand, and what of a batch is among them.
    v_look      int;
    v_last      bigint;
    v_found     record;
    v_batched   int := 0;
    -- Of a partition: where each priority begins; whose fresh jobs wait for a fuller batch, as priority and task, and up to
    -- where they were looked for.
    v_starts    bigint[];
    v_waiting   text[];
    v_seen      bigint[];
begin
    loop
        -- In the order of the spans, as they are joined one by one: to sort them, all would have to be looked at.
        select g.n, coalesce(r.partition_id, k.id) into v_span, v_id
          from unnest(p_firsts, p_lasts) with ordinality as g(first, last, n)
         cross join lateral (select case when g.n = v_span then v_next else g.first end as next) as f
         cross join lateral (select min(s) as id from unnest(p_started) as s where s between f.next and g.last) as k
          left join lateral (
               select partition_id from @schema@.ready
                where not is_parked and partition_id between f.next and coalesce(k.id - 1, g.last)
                order by partition_id, priority, pos limit 1) as r on true
         where g.n >= v_span and coalesce(r.partition_id, k.id) is not null
         limit 1;
        exit when not found;
        v_next := v_id + 1;
        select p.id, q.id as queue_id, q.max_wait_seconds, p_batch_sizes -> q.id::text as batches,
               q.running_limit is not null or q.rate is not null or q.total_limit is not null
               or q.total_rate is not null as is_gated, q.is_paused or q.is_owned as is_withheld, p.state = 'shut' as is_shut,
               array(select t.task from @schema@.worker_task as t where t.worker_id = p_worker and t.queue_id = q.id) as tasks
          into v_partition
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
         where p.id = v_id;
        continue when v_partition.id is null or v_partition.is_shut;
        v_left := v_caps ->> v_partition.queue_id::text;
        v_most := case when not v_partition.is_gated then p_slots + p_ahead
                       when p_slots = 0 and v_is_first and (cardinality(p_firsts) > 1 or p_firsts <> p_lasts) then p_ahead
                       else p_slots end;
        if v_partition.is_withheld or v_partition.tasks = '{}' or v_left <= 0 or v_taken >= v_most then
            -- So it is with the others of its queue: on to the next of another.
            v_next := coalesce((select p.id from @schema@.partition as p
                                 where p.id >= v_next and p.queue_id <> v_partition.queue_id order by p.id limit 1), p_lasts[v_span] + 1);
            continue;
        end if;
        v_is_first := false;
        v_before := v_taken;
        v_jobs := 0;
        v_room := null;
        v_known := v_partition.tasks;
        v_is_inside := false;
        v_most := least(v_most, v_taken + v_left);
        if v_partition.max_wait_seconds is not null then
            while @schema@.expire_head(v_partition.id, make_interval(secs => v_partition.max_wait_seconds)) > 0 loop
            end loop;
        end if;
        v_levels := '{0,1,2,3,4,5,6,7,8,9}';
        v_starts := array_fill(-4611686018427387904, '{10}');
        if v_id = any (p_started) then
            v_starts := p_starts[(array_position(p_started, v_id) - 1) * 10 + 1 : array_position(p_started, v_id) * 10];
        end if;
        v_waiting := '{}';
        v_seen := array_fill(0::bigint, '{10}');
        loop
            v_first := null;
            v_second := 'infinity';
            for v_first in
                select level.priority, r.pos, r.ready_at, r.high - r.low as size, r.task, r.attempt, r.rescues,
                       r.ready_at + level.priority * interval '60 s' as rank, v_starts[level.priority + 1] as start,
                       lead(r.ready_at + level.priority * interval '60 s')
                           over (order by r.ready_at + level.priority * interval '60 s', level.priority) as second_rank
                  from unnest(v_levels) as level(priority)
                 cross join lateral (
                       select pos, ready_at, low, high, task, attempt, rescues from @schema@.ready
                        where partition_id = v_partition.id and not is_parked and priority = level.priority
                          and pos >= v_starts[level.priority + 1] and task = any (v_known)
                          and (v_partition.batches is null or (
                               (rescues < 2 or not v_has_suspect)
                               and not (attempt = 1 and rescues = 0 and pos <= v_seen[level.priority + 1]
                                        and level.priority || ' ' || task = any (v_waiting))))
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
                v_room := least(v_gate.free, v_gate.bucket_tokens);
                exit when v_room <= 0;
                -- What was first before the gate may be gone.
                continue;
            end if;
            v_asked := least(v_most - v_taken, v_room - v_jobs);
            v_rows := least(v_asked, v_asked / v_first.size + 1);
            v_tasks := v_known;
            v_is_fresh := null;
            v_batch := null;
            v_last := 9223372036854775807;
            if v_partition.batches is not null then
                v_size := v_partition.batches -> v_first.task ->> 0;
                v_wait := make_interval(secs => (v_partition.batches -> v_first.task ->> 1)::double precision);
                v_first.start := v_first.pos;
                v_last := null;
                if v_size is null then
                    v_tasks := array(select t from unnest(v_known) as t where not v_partition.batches ? t);
                    v_look := v_rows + 100;
                elsif v_first.attempt > 1 or v_first.rescues > 0 then
                    v_tasks := array[v_first.task];
                    v_is_fresh := false;
                    v_look := v_rows + 100;
                else
                    v_tasks := array[v_first.task];
                    v_is_fresh := true;
                    v_asked := least(v_size, v_room - v_jobs);
                    v_look := greatest(10 * v_asked, 100);
                    -- The inner look ends as soon as the batch is full.
                    select coalesce(sum(w.n), 0)::int as jobs, count(*) filter (where w.before < v_asked)::int as rows,
                           min(w.ready_at) as oldest, max(w.pos) as last
                      into v_found
                      from (select m.pos, m.ready_at, m.n, sum(m.n) over (order by m.pos, m.range, m.low) - m.n as before
                              from (select r.pos, r.range, r.low, r.ready_at,
                                           @schema@.members_count(r.low, r.high, r.members) as n
                                      from (select pos, range, low, high, members, ready_at, task, attempt, rescues
                                              from @schema@.ready
                                             where partition_id = v_partition.id and not is_parked
                                               and priority = v_first.priority and pos >= v_first.pos
                                             order by pos limit v_look) as r
                                     where r.task = v_first.task and r.attempt = 1 and r.rescues = 0
                                     order by r.pos limit v_asked) as m) as w;
                    v_last := case when v_found.jobs >= v_asked then v_found.last end;
                end if;
                if v_last is null then
                    select coalesce(max(r.pos), v_first.pos) into v_last
                      from (select pos from @schema@.ready
                             where partition_id = v_partition.id and not is_parked and priority = v_first.priority
                               and pos >= v_first.pos
                             order by pos limit v_look) as r;
                end if;
                if v_is_fresh then
                    if v_found.jobs = 0 or (v_found.jobs < v_asked and v_found.oldest + v_wait > clock_timestamp()) then
                        v_opens_at := least(v_opens_at, v_found.oldest + v_wait);
                        v_waiting := v_waiting || (v_first.priority || ' ' || v_first.task);
                        v_seen[v_first.priority + 1] := greatest(v_seen[v_first.priority + 1], v_last);
                        continue;
                    end if;
                    v_rows := v_found.rows;
                    v_batch := case when least(v_found.jobs, v_asked) > 1 then nextval('@schema@.lease_number') end;
                end if;
            end if;
            v_got := 0;
            v_leases := 0;
            for v_lease in
                select t.id, t.partition_id, t.priority, t.pos, t.range, t.low, t.high, t.members,
                       t.attempt, t.rescues, t.is_ahead, t.ready_at, t.task, t.batch
                  from @schema@.take(p_worker, p_token, v_partition.id, v_first.priority, v_first.start,
                    greatest(v_second - v_first.priority * interval '60 s', v_first.ready_at), v_tasks,
                    case when v_batch is null then greatest(least(p_slots - v_taken, v_asked), 0)
                         when v_taken < p_slots then v_asked else 0 end,
                    v_asked, v_rows, v_has_suspect, v_batch, v_is_fresh, v_last) as t
            loop
                v_got := v_got + @schema@.members_count(v_lease.low, v_lease.high, v_lease.members);
                v_leases := v_leases + 1;
                v_has_suspect := v_has_suspect or v_lease.rescues > 1;
                return next v_lease;
            end loop;
            v_taken := v_taken + case when v_batch is null then v_got else (v_got > 0)::int end;
            v_jobs := v_jobs + v_got;
            exit when v_taken >= v_most or v_jobs >= v_room;
            if v_partition.batches is not null then
                -- Slots may be many and batches large: not more than this is taken together.
                v_batched := v_batched + v_got;
                exit when v_batched >= 8192;
                if v_got = 0 then
                    -- Others are taking it.
                    v_starts[v_first.priority + 1] := v_last + 1;
                end if;
                continue;
            end if;
            -- The only priority that had anything gave fewer rows than it might have: nothing is left to look for.
            exit when v_second = 'infinity' and v_leases < v_rows and not v_has_suspect;
            if v_got = 0 then
                v_levels := array_remove(v_levels, v_first.priority::int);
            end if;
        end loop;
        v_left := v_left - (v_taken - v_before);
        if v_left is not null then
            v_caps := v_caps || jsonb_build_object(v_partition.queue_id, v_left);
        end if;
        if v_is_inside then
            v_got := v_jobs;
            if v_gate.rate is not null then
                v_gate.full_at := v_gate.full_at + ceil(v_got * 1e6 / v_gate.rate) * interval '1 microsecond';
                if v_got >= v_gate.bucket_tokens and (v_gate.free is null or v_gate.free > v_got) then
                    v_opens_at := least(v_opens_at, v_gate.full_at
                        - (@schema@.burst_of(v_gate.rate) - 1) / v_gate.rate * interval '1 second');
                end if;
            end if;
            if v_got > 0 and v_gate.starts is not null then
                insert into @schema@.spent (partition_id, full_at, starts)
                values (v_partition.id, v_gate.full_at, v_gate.starts + v_got);
            end if;
            -- Where the worker's own cap kept it from more, the room is for others.
            if v_got >= v_gate.free or (v_taken < p_slots and (v_left is null or v_left > 0)) then
                v_offered := array_remove(v_offered, v_partition.id);
            end if;
        end if;
        exit when v_taken >= p_slots + p_ahead or v_batched >= 8192;
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
