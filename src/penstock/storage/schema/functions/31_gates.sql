-- The gate of a partition with a limit or a rate. Whoever enters holds it until its commit, so that counting and taking
-- are one act; what is counted is read by a statement after the lock.

-- Jobs under leases in a partition. The table is read as a whole: leases are few, their index is long with dead entries.
create or replace function @schema@.running_in(p_partition int) returns bigint
language plpgsql set enable_seqscan = on set enable_indexscan = off set enable_bitmapscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    return (select coalesce(sum(@schema@.members_count(low, high, members)), 0) from @schema@.lease
             where partition_id = p_partition);
end $$;

-- Enters a partition's gate: how many its limit lets start (none, while an earlier place of it goes on), how many its rate
-- (null: any number), and when the rate's bucket is full (now, where it is already). Whoever holds a gate of a higher number does not wait at this one: two
-- would wait for each other. Locks: the partition's row, against nobody but those who enter.
create or replace function @schema@.enter_gate(
    p_partition int, p_may_wait boolean,
    out is_inside boolean, out free int, out bucket_tokens int, out rate double precision, out full_at timestamptz)
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
        select q.running_limit - case when q.running_limit is not null then @schema@.running_in(p.id) end, q.rate,
               greatest(clock_timestamp(), (select s.full_at from @schema@.spent as s
                                             where s.partition_id = p.id order by s.id desc limit 1))
          into free, rate, full_at
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id where p.id = p_partition;
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
         where p.id = any (p_partitions) and q.running_limit is not null and not q.is_owned and not q.is_paused) as waiting;
end $$;
