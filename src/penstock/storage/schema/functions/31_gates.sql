-- The gate of a partition with a limit or a rate, or whose queue has a total_limit or a total_rate. Whoever enters holds it until its commit, so that counting and taking
-- are one act; what is counted is read by a statement after the lock.

-- Jobs under leases in a partition. The table is read as a whole: leases are few, their index is long with dead entries.
create or replace function @schema@.running_in(p_partition int) returns bigint
language plpgsql set enable_seqscan = on set enable_indexscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    return (select coalesce(sum(@schema@.members_count(low, high, members)), 0) from @schema@.lease
             where partition_id = p_partition);
end $$;

-- How many jobs have started in a partition by a rate or a total_rate. Index: the primary key of spent.
create or replace function @schema@.starts_in(p_partition int) returns bigint
language sql stable
begin atomic
    select coalesce((select s.starts from @schema@.spent as s where s.partition_id = p_partition order by s.id desc limit 1), 0);
end;

-- How many jobs may start in a partition by its queue's total_rate: what it was granted and has not spent, if that has not
-- run out. Index: the primary key of spent.
create or replace function @schema@.total_tokens(p_partition int) returns int
language sql volatile
begin atomic
    select case when clock_timestamp() < p.tokens_until
                then greatest(0, p.token_total - @schema@.starts_in(p.id))
                else 0 end::int
      from @schema@.partition as p where p.id = p_partition;
end;

-- Spends tokens of a partition's total_rate for jobs that its owner chose; false, and nothing is spent, where it has too few.
-- Locks: the partition's row.
create or replace function @schema@.spend_total_tokens(p_partition int, p_count int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.partition where id = p_partition for no key update;
    if @schema@.total_tokens(p_partition) < p_count then
        return false;
    end if;
    insert into @schema@.spent (partition_id, full_at, starts)
    select p_partition, coalesce(max(s.full_at), clock_timestamp()), coalesce(max(s.starts), 0) + p_count
      from (select full_at, starts from @schema@.spent where partition_id = p_partition order by id desc limit 1) as s;
    return true;
end $$;

-- Enters a partition's gate: how many its limit, its permits and its tokens of a total_rate let start (none, while an earlier place of it goes on), how many its rate
-- (null: any number), when the rate's bucket is full (now, where it is already), and how many have started by either rate (null: there is none). Whoever holds a gate of a higher number does not wait at this one: two
-- would wait for each other. Locks: the partition's row, against nobody but those who enter.
create or replace function @schema@.enter_gate(
    p_partition int, p_may_wait boolean,
    out is_inside boolean, out free int, out bucket_tokens int, out rate double precision, out full_at timestamptz, out starts bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_may_wait then
        perform from @schema@.partition where id = p_partition for no key update;
    else
        perform from @schema@.partition where id = p_partition for no key update skip locked;
    end if;
    is_inside := found;
    if is_inside and @schema@.is_still(p_partition) then
        free := 0;
    elsif is_inside then
        select least(least(q.running_limit, case when q.total_limit is not null then p.permits end)
                     - case when q.running_limit is not null or q.total_limit is not null then @schema@.running_in(p.id) end,
                     case when q.total_rate is not null then @schema@.total_tokens(p.id) end), q.rate,
               greatest(clock_timestamp(), last.full_at),
               case when q.rate is not null or q.total_rate is not null then coalesce(last.starts, 0) end
          into free, rate, full_at, starts
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
          left join lateral (select s.full_at, s.starts from @schema@.spent as s
                              where s.partition_id = p.id order by s.id desc limit 1) as last on true
         where p.id = p_partition;
        bucket_tokens := floor(@schema@.tokens(rate, full_at, clock_timestamp()));
    end if;
end $$;

-- Wakes who waits for room in these partitions, where they have a limit and something to do: jobs ended there, and
-- whoever settled them takes no others. It enters the gates: a worker that looks and falls asleep at the same time
-- either sees the room or is seen. Locks: the partitions' rows by number.
create or replace function @schema@.wake_gates(p_partitions int[], p_may_wait boolean default true) returns void
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    if p_may_wait then
        perform from @schema@.partition where id = any (p_partitions) order by id for no key update;
    end if;
    perform @schema@.wake(queue_id) from (
        select distinct p.queue_id
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
         cross join generate_series(0, 9) as level(priority)
         cross join lateral (
               select from @schema@.ready as r
                where r.partition_id = p.id and not r.is_parked and r.priority = level.priority
                order by r.pos limit 1) as head
         where p.id = any (p_partitions) and (q.running_limit is not null or q.total_limit is not null)
           and not q.is_owned and not q.is_paused) as waiting;
end $$;
