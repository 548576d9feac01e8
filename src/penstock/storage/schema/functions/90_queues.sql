-- Queues are declared.

-- Of a change of the catalogue; whoever makes another one waits. Refused where another shard leads (PS004): one that has
-- said that it is drained says nothing more. Locks: the one row.
create or replace function @schema@.next_version() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint;
begin
    update @schema@.catalogue set version = version + 1 returning version into v_version;
    if not @schema@.is_lead() then
        raise exception using errcode = 'PS004', message = 'another shard leads, and changes the catalogue';
    end if;
    return v_version;
end $$;

-- Creates a queue with its partitions and its first map, unless it exists; whether it did not. p_avoid: shards that are
-- down. Locks: the catalogue,
-- where it does not.
create or replace function @schema@.declare_queue(
    p_name text, p_partitions int, p_rules jsonb, p_weights json, p_avoid int[] default '{}') returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint;
    v_queue   int;
    v_ids     int[];
begin
    -- It would stand in the way of the queue that is deleted under this number, or be taken for it.
    if p_name ~ ' \(deleted [0-9]+\)' then
        perform @schema@.refuse('queue', format('%L is how a deleted queue is named; choose another name', p_name));
    end if;
    if exists (select from @schema@.queue where name = p_name) then
        return false;
    end if;
    v_version := @schema@.next_version();
    insert into @schema@.queue (name, partitions, rules, weights) values (p_name, p_partitions, p_rules, p_weights)
    on conflict (name) do nothing returning id into v_queue;
    if v_queue is null then
        return false;
    end if;
    v_ids := @schema@.partitions_for(v_queue, p_partitions, p_avoid);
    perform @schema@.set_map(
        v_queue, v_version, v_ids,
        array(select distinct p.shard from @schema@.partition as p where p.id = any (v_ids) order by 1), false, 'open');
    return true;
end $$;

-- A bucket emptied by a slow rate would be full only after that rate's time: it is empty by the new rate instead. Nobody
-- claims by the old rate meanwhile. Locks: the partitions' rows by number.
create or replace function @schema@.fit_buckets(p_queue int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.partition where queue_id = p_queue order by id for no key update;
    insert into @schema@.spent (partition_id, full_at, starts)
    select p.id, empty.full_at, last.starts
      from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
     cross join lateral (select s.full_at, s.starts from @schema@.spent as s where s.partition_id = p.id order by s.id desc limit 1) as last
     cross join lateral (
           select clock_timestamp() + @schema@.burst_of(q.rate) / q.rate * interval '1 second' as full_at) as empty
     where q.id = p_queue and last.full_at > empty.full_at;
end $$;
