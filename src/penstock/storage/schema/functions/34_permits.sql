-- Permits: how many of a queue's total_limit each partition may use. The shard that leads keeps the ledger; each partition's
-- row has what it was told last. To raise, the ledger is written before the partition, to lower, after it: whoever stops in
-- between leaves too few, never too many. Each word to a partition bears a number, and one that comes late changes nothing.
--
-- Tokens of a queue's total_rate go the same way. Its one bucket is in the row of the duty. A partition is told how many may
-- have started there in all, so that a word that comes twice gives nothing twice, and until when, by the clock of its own
-- shard: a second after it reported. What it has not started by then it is told to give back; what it does not answer for is
-- forfeited. All partitions together never have more than the bucket holds. So from any instant on no more start than what
-- is out then, what the bucket has, and what comes in: two seconds' worth + rate * time.
--
--   report  what a partition has and runs, and whether more waits there     on each shard
--   note    the ledger learns what is not held any more                     on the lead
--   allot   the ledger promises more to some, and less to others            on the lead
--   tell    a partition takes what the ledger has for it                    on its shard

-- Jobs under leases, a row a partition that has any, as of the statement that asks. The table is read as a whole, once.
create or replace function @schema@.running_by_partition() returns table (partition_id int, jobs int)
language plpgsql stable set enable_seqscan = on set enable_indexscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    return query
    select l.partition_id, sum(@schema@.members_count(l.low, l.high, l.members))::int from @schema@.lease as l group by l.partition_id;
end $$;

-- How the permits and tokens of a queue are used on this shard, a row a partition: the number of what it was told last, its
-- permits, what runs, how many wait (no more than the limit, or the burst of the rate), for how long the first of those has,
-- how many have started by a rate, what time it is here, and whether jobs are written there. Nothing on a shard that has not
-- learned of either. Of a thousand rows that wait one may be many more: then as many wait as may. Number and leases are of one
-- snapshot: whoever was in the gate by an older word had committed when the newer one was taken. Index: ready_in_order.
create or replace function @schema@.report_permits(p_queue int)
returns table (partition_id int, number bigint, permits int, running int, waiting int, waited_seconds double precision,
               starts bigint, as_of timestamptz, is_current boolean)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    return query
    select p.id, p.permit_number, p.permits, coalesce(running.jobs, 0), w.n,
           extract(epoch from clock_timestamp() - w.since)::double precision, @schema@.starts_in(p.id), clock_timestamp(),
           p.state = 'current'
      from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
      left join @schema@.running_by_partition() as running on running.partition_id = p.id
     cross join lateral (select greatest(q.total_limit, @schema@.burst_of(q.total_rate)::int) as n) as most
     cross join lateral (
           select case when count(*) >= 1000 then most.n
                       else least(coalesce(sum(@schema@.members_count(h.low, h.high, h.members)), 0), most.n) end::int as n, min(h.ready_at) as since
             from generate_series(0, 9) as level(priority)
            cross join lateral (
                  select r.low, r.high, r.members, r.ready_at from @schema@.ready as r
                   where r.partition_id = p.id and not r.is_parked and r.priority = level.priority
                   order by r.pos limit least(most.n, 1000)) as h
            where not q.is_paused) as w
     where q.id = p_queue and most.n is not null and p.shard = @schema@.here()
     order by p.id;
end $$;

-- Tells a partition how many permits it has, and how many may have started there until when, unless it was told something
-- later; its report after that, without what waits. Nobody is in its gate then: it has told of all that have started.
-- Waits for who is in the gate, for a moment (55P03). Locks: the partition's row.
create or replace function @schema@.tell_permits(
    p_partition int, p_number bigint, p_permits int, p_token_total bigint, p_until timestamptz,
    out number bigint, out permits int, out running int, out starts bigint, out as_of timestamptz)
language plpgsql set lock_timeout = '500ms' set search_path = pg_catalog, pg_temp as $$
declare
    v_before record;
begin
    select p.queue_id, p.permits, p.token_total into v_before from @schema@.partition as p
     where p.id = p_partition and p.shard = @schema@.here() for no key update;
    update @schema@.partition as p set permits = p_permits, permit_number = p_number, token_total = p_token_total,
           tokens_until = coalesce(p_until, '-infinity')
     where p.id = p_partition and p.shard = @schema@.here() and p.permit_number < p_number;
    if found and (p_permits > v_before.permits or p_token_total > v_before.token_total) then
        perform @schema@.wake(v_before.queue_id);
    end if;
    select p.permit_number, p.permits, @schema@.running_in(p.id), @schema@.starts_in(p.id), clock_timestamp()
      into number, permits, running, starts, as_of
      from @schema@.partition as p where p.id = p_partition;
end $$;

-- Takes on to allot the permits and tokens of a queue for some seconds, or goes on to; false where somebody else does. Who
-- asks in vain locks nothing, and who has it writes only when half of the time is over: all workers ask, several times a second.
-- Locks: the row of the duty, where it is written.
create or replace function @schema@.take_permit_duty(p_queue int, p_holder bigint, p_seconds double precision) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_duty record;
begin
    select d.holder, extract(epoch from d.until - clock_timestamp()) as seconds into v_duty
      from @schema@.permit_duty as d where d.queue_id = p_queue;
    if v_duty.holder <> p_holder and v_duty.seconds >= 0 then
        return false;
    elsif v_duty.holder = p_holder and v_duty.seconds > p_seconds / 2 then
        return true;
    end if;
    insert into @schema@.permit_duty as d (queue_id, holder, until)
    values (p_queue, p_holder, clock_timestamp() + make_interval(secs => p_seconds))
    on conflict (queue_id) do update set holder = excluded.holder, until = excluded.until
     where d.holder = excluded.holder or d.until < clock_timestamp();
    return found;
end $$;

-- The number of the next word to a partition: above all that this shard, or one that led before it, has given.
create or replace function @schema@.next_permit_number(p_number bigint) returns bigint
language sql stable
return greatest(p_number, @schema@.here()::bigint << 40) + 1;

-- The whole ledger of a queue, and how many tokens there are to grant (null: the queue has no total_rate).
create or replace function @schema@.read_ledger(p_queue int)
returns table (partition_id int, permits int, number bigint, held int, changed_seconds double precision, total_limit int,
               token_total bigint, starts bigint, used bigint, tokens_until timestamptz, granted_seconds double precision, room int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_room int := @schema@.token_room(p_queue);
begin
    return query
    select l.partition_id, l.permits, l.number, l.held,
           extract(epoch from clock_timestamp() - l.changed_at)::double precision, q.total_limit,
           l.token_total, l.starts, l.starts - l.starts_before, nullif(l.tokens_until, '-infinity'),
           extract(epoch from clock_timestamp() - l.granted_at)::double precision, v_room
      from @schema@.permit_ledger as l join @schema@.queue as q on q.id = l.queue_id where l.queue_id = p_queue order by l.partition_id;
end $$;

-- Notes in the ledger what partitions have reported: what each occupies is what it may have at most from now on, if it has
-- answered to the newest number. One that has heard a higher number was told by another lead, or by a ledger that is lost:
-- it gets a higher one yet. Places of drained shards hold nothing any more. The whole ledger of the queue, as @schema@.read_ledger
-- has it; nothing, and nothing is written, where the queue has no total any more, for it may be deleted. Refused where another
-- shard leads (PS004). Locks: the queue's ledger, by its duty.
create or replace function @schema@.note_permits(
    p_queue int, p_partitions int[], p_numbers bigint[], p_occupied int[], p_starts bigint[])
returns table (partition_id int, permits int, number bigint, held int, changed_seconds double precision, total_limit int,
               token_total bigint, starts bigint, used bigint, tokens_until timestamptz, granted_seconds double precision, room int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rate double precision;
begin
    if not @schema@.is_lead() then
        raise exception using errcode = 'PS004', message = 'another shard leads, and allots permits';
    end if;
    insert into @schema@.permit_duty (queue_id, holder, until)
    select q.id, 0, clock_timestamp() from @schema@.queue as q
     where q.id = p_queue and (q.total_limit is not null or q.total_rate is not null)
        on conflict do nothing;
    perform from @schema@.permit_duty as d where d.queue_id = p_queue for update;
    -- Read after the lock: whoever deletes the queue has it first.
    select q.total_rate into v_rate from @schema@.queue as q
     where q.id = p_queue and (q.total_limit is not null or q.total_rate is not null);
    if not found then
        return;
    end if;
    insert into @schema@.permit_ledger as l (partition_id, queue_id, number)
    select p.id, p.queue_id, @schema@.next_permit_number(0) from @schema@.partition as p
     where p.queue_id = p_queue and not exists (select from @schema@.shard as s where s.number = p.shard and s.state = 'drained')
        on conflict do nothing;
    delete from @schema@.permit_ledger as l using @schema@.partition as p, @schema@.shard as s
     where l.queue_id = p_queue and p.id = l.partition_id and s.number = p.shard and s.state = 'drained';
    if v_rate is not null then
        perform @schema@.note_starts(p_queue, v_rate, p_partitions, p_numbers, p_starts);
    end if;
    update @schema@.permit_ledger as l
       set held = case when g.number = l.number then g.occupied end,
           number = case when g.number = l.number then l.number else @schema@.next_permit_number(g.number) end
      from unnest(p_partitions, p_numbers, p_occupied) as g(id, number, occupied)
     where l.partition_id = g.id and l.queue_id = p_queue
       and (g.number > l.number or g.number = l.number and l.held is distinct from g.occupied);
    return query select r.* from @schema@.read_ledger(p_queue) as r;
end $$;

-- Notes in the ledger how many jobs have started. What was told to give back its tokens and has answered to that has none: they
-- come back into the bucket. Where it is not known what a partition was told, or it has started fewer than before (its shard
-- was restored), it is told anew that it has none. What nobody has answered for in two seconds is forfeited. The bucket is full
-- at first, if nothing has ever started by the rate; empty, where what became of it is not known.
create or replace function @schema@.note_starts(
    p_queue int, p_rate double precision, p_partitions int[], p_numbers bigint[], p_starts bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_empty   timestamptz := clock_timestamp() + @schema@.burst_of(p_rate) / p_rate * interval '1 second';
    v_is_new  boolean;
    v_is_lost boolean;
    v_back    double precision;
begin
    select count(g.id) filter (where g.starts = 0) = count(*), bool_or(g.number > l.number),
           coalesce(sum(l.token_total - g.starts) filter (where g.number = l.number and l.tokens_until = '-infinity' and l.token_total > g.starts), 0)
      into v_is_new, v_is_lost, v_back
      from @schema@.permit_ledger as l left join unnest(p_partitions, p_numbers, p_starts) as g(id, number, starts) on g.id = l.partition_id
     where l.queue_id = p_queue;
    update @schema@.permit_duty as d
       set full_at = case when d.full_at is null and v_is_new then clock_timestamp()
                          when d.full_at is null or v_is_lost then v_empty
                          else least(d.full_at, v_empty) - v_back / p_rate * interval '1 second' end
     where d.queue_id = p_queue and (d.full_at is null or v_is_lost or v_back > 0 or d.full_at > v_empty);
    update @schema@.permit_ledger as l
       set starts = g.starts,
           token_total = case when g.is_unsure or g.number = l.number and l.tokens_until = '-infinity' then g.starts else l.token_total end,
           tokens_until = case when g.is_unsure then '-infinity' else l.tokens_until end,
           number = case when g.is_unsure and g.number <= l.number then @schema@.next_permit_number(l.number) else l.number end
      from (select u.id, u.number, u.starts, u.number > o.number or u.starts < o.starts as is_unsure
              from unnest(p_partitions, p_numbers, p_starts) as u(id, number, starts)
              join @schema@.permit_ledger as o on o.partition_id = u.id) as g
     where l.partition_id = g.id and l.queue_id = p_queue
       and (g.is_unsure or l.starts <> g.starts
            or g.number = l.number and l.tokens_until = '-infinity' and l.token_total <> g.starts);
    update @schema@.permit_ledger as l set token_total = l.starts
     where l.queue_id = p_queue and l.token_total > l.starts and l.partition_id <> all (p_partitions)
       and l.granted_at < clock_timestamp() - interval '2 seconds';
end $$;

-- How many tokens of a queue's total_rate may be granted: what its bucket has, as long as all partitions together have no more
-- than it holds.
create or replace function @schema@.token_room(p_queue int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return (select greatest(0, least(floor(@schema@.tokens(q.total_rate, d.full_at, clock_timestamp())),
                                     @schema@.burst_of(q.total_rate) - sum(greatest(0, l.token_total - l.starts))))
              from @schema@.queue as q
              join @schema@.permit_duty as d on d.queue_id = q.id
              join @schema@.permit_ledger as l on l.queue_id = q.id
             where q.id = p_queue and q.total_rate is not null group by q.id, d.queue_id);
end $$;

-- Grants partitions tokens, by the numbers that their words had when that was decided, in the order given, as far as there are
-- any, for a second from when each reported; none means that it is to give back what it has. How many were told anything.
-- Locks: the queue's ledger, by its duty.
create or replace function @schema@.grant_tokens(
    p_queue int, p_partitions int[], p_numbers bigint[], p_tokens int[], p_as_of timestamptz[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_room  int;
    v_given int := 0;
    v_count int := 0;
    v_row   record;
begin
    perform from @schema@.permit_duty as d where d.queue_id = p_queue for update;
    v_room := coalesce(@schema@.token_room(p_queue), 0);
    for v_row in
        select g.id, g.tokens, g.as_of
          from unnest(p_partitions, p_numbers, p_tokens, p_as_of) with ordinality as g(id, number, tokens, as_of, n)
          join @schema@.permit_ledger as l on l.partition_id = g.id and l.queue_id = p_queue and l.number = g.number order by g.n
    loop
        continue when v_row.tokens > 0 and v_room <= v_given;
        v_row.tokens := least(v_row.tokens, v_room - v_given);
        update @schema@.permit_ledger as l
           set token_total = greatest(l.token_total, l.starts) + v_row.tokens, starts_before = l.starts, granted_at = clock_timestamp(),
               tokens_until = case when v_row.tokens > 0 then v_row.as_of + interval '1 second' else '-infinity' end,
               number = @schema@.next_permit_number(l.number)
         where l.partition_id = v_row.id;
        v_given := v_given + v_row.tokens;
        v_count := v_count + 1;
    end loop;
    update @schema@.permit_duty as d
       set full_at = greatest(d.full_at, clock_timestamp()) + ceil(v_given * 1e6 / q.total_rate) * interval '1 microsecond'
      from @schema@.queue as q where q.id = d.queue_id and d.queue_id = p_queue and v_given > 0;
    return v_count;
end $$;

-- Promises partitions other numbers of permits, by the numbers that their words had when that was decided: first to those that
-- get fewer, then to the others in the order given, as far as the limit goes. While anybody's is not known nobody gets more.
-- How many were changed. Locks: the queue's ledger, by its duty.
create or replace function @schema@.allot_permits(p_queue int, p_partitions int[], p_numbers bigint[], p_permits int[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_room  int;
    v_count int;
    v_row   record;
begin
    perform from @schema@.permit_duty as d where d.queue_id = p_queue for update;
    update @schema@.permit_ledger as l
       set permits = g.permits, held = greatest(l.held, l.permits), number = @schema@.next_permit_number(l.number), changed_at = clock_timestamp()
      from unnest(p_partitions, p_numbers, p_permits) as g(id, number, permits)
     where l.partition_id = g.id and l.queue_id = p_queue and l.number = g.number and l.held is not null and g.permits < l.permits;
    get diagnostics v_count = row_count;
    select case when bool_and(l.held is not null) then q.total_limit - sum(greatest(l.held, l.permits)) else 0 end
      into v_room
      from @schema@.queue as q join @schema@.permit_ledger as l on l.queue_id = q.id where q.id = p_queue group by q.id;
    for v_row in
        select l.partition_id, l.permits, g.permits as wanted, greatest(l.held, l.permits) as held
          from unnest(p_partitions, p_numbers, p_permits) with ordinality as g(id, number, permits, n)
          join @schema@.permit_ledger as l on l.partition_id = g.id and l.queue_id = p_queue and l.number = g.number
         where g.permits > l.permits and l.held is not null order by g.n
    loop
        v_row.wanted := least(v_row.wanted, v_row.held + greatest(v_room, 0));
        continue when v_row.wanted <= v_row.permits;
        update @schema@.permit_ledger as l
           set permits = v_row.wanted, number = @schema@.next_permit_number(l.number), changed_at = clock_timestamp()
         where l.partition_id = v_row.partition_id;
        v_room := v_room - greatest(v_row.wanted - v_row.held, 0);
        v_count := v_count + 1;
    end loop;
    return v_count;
end $$;

-- Of a queue that gets a total_limit nobody knows how much its partitions run: each is asked before any may start more.
-- Locks: the queue's ledger, by its duty.
create or replace function @schema@.forget_permits(p_queue int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.permit_duty as d where d.queue_id = p_queue for update;
    update @schema@.permit_ledger as l set held = null, permits = 0, number = @schema@.next_permit_number(l.number) where l.queue_id = p_queue;
end $$;
