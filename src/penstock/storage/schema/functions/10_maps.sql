-- The map of keys to partitions that somebody writes by.

-- Locks a map of keys to partitions for this transaction: false where it is not open, or not any more, and then nothing
-- may be written by it. A resize replaces it first and calls it closed when nobody has it locked: a row that is locked is
-- read as it is when the lock is had. Above READ COMMITTED it would be read as it was: there the row is locked against all
-- changes, and the caller is told to begin again (40001) where it changed since. Never waits for a resize; shared with all
-- other producers. A row's lock and not an advisory one: that could be taken by anybody who may connect, and would hold up
-- every producer.
create or replace function @schema@.lock_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_state text;
begin
    select state into v_state from @schema@.queue_map where queue_id = p_queue and epoch = p_epoch for key share;
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        if v_state is null then
            raise exception using errcode = '40001',
                message = format('queue %s was resized since this transaction began: begin it again', p_queue);
        elsif v_state in ('announced', 'open') then
            perform from @schema@.queue_map where queue_id = p_queue and epoch = p_epoch for share;
        end if;
    end if;
    return coalesce(v_state = 'open', false);
end $$;

-- Locks the newest map of a queue; its epoch. Waits a moment for one that is not open yet. That of a deleted queue is
-- never open again: what moves there moves by it all the same, and is ended where it comes to.
create or replace function @schema@.lock_newest_map(p_queue int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch      int;
    v_is_deleted boolean;
begin
    for v_try in 1..250 loop
        select epoch, deleted_at is not null into v_epoch, v_is_deleted from @schema@.queue where id = p_queue;
        if v_epoch is null or @schema@.lock_map(p_queue, v_epoch) or v_is_deleted then
            return v_epoch;
        end if;
        if exists (select from @schema@.queue_map where queue_id = p_queue and epoch = v_epoch and state = 'announced') then
            perform pg_sleep(0.02);
        end if;
    end loop;
    raise exception using errcode = '55P03',
        message = format('queue %s gets another map of its keys, and a shard does not answer: try again', p_queue);
end $$;

-- The same as lock_map for several queues; the arrays are parallel.
create or replace function @schema@.lock_maps(p_queues int[], p_epochs int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    for i in 1..cardinality(p_queues) loop
        if not @schema@.lock_map(p_queues[i], p_epochs[i]) then
            return false;
        end if;
    end loop;
    return true;
end $$;

-- The partition of a job by a map: its key's. Without a key its own, or where the map has not got that any more, another
-- one of this shard; where there is none, its own still, which is served until it is empty, unless it came from elsewhere.
create or replace function @schema@.partition_for_key(p_ids int[], p_key bytea, p_own int) returns int
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    v_here int[];
begin
    if p_key is not null then
        return p_ids[1 + @schema@.partition_of(p_key, cardinality(p_ids))];
    elsif p_own = any (p_ids) then
        return p_own;
    end if;
    select array_agg(id order by number) into v_here
      from @schema@.partition where id = any (p_ids) and shard = @schema@.here();
    if v_here is null then
        v_here := case when exists (select from @schema@.partition where id = p_own and shard = @schema@.here())
                       then array[p_own] else p_ids end;
    end if;
    return v_here[1 + (select number from @schema@.partition where id = p_own) % cardinality(v_here)];
end $$;

-- Where a job of a queue with an owner becomes ready, by the newest map, which is locked.
create or replace function @schema@.partition_by_map(p_partition int, p_job bigint, out partition_id int, out epoch int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue int;
begin
    select queue_id into v_queue from @schema@.partition where id = p_partition;
    epoch := @schema@.lock_newest_map(v_queue);
    select @schema@.partition_for_key(m.partition_ids, j.key, p_partition) into partition_id
      from @schema@.queue_map as m left join lateral (select key from @schema@.job_stored where id = p_job limit 1) as j on true
     where m.queue_id = v_queue and m.epoch = partition_by_map.epoch;
end $$;
