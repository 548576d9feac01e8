-- A map of keys over several shards. First the new map is set on the lead and carried to the others, and nobody
-- may write by it: whoever learns it writes by no map at all. When every shard that has a partition of the map before
-- knows it, nobody writes by that one any more, and the new one is opened (@schema@.open_map): a job by the new map on
-- one shard is never acknowledged before one by the old map begins on another. A shard that answers neither holds all
-- keys up: the change is undone by a further map, with the partitions there were (@schema@.undo_map). What is left
-- of an old map is known on its shard only; it is told to the others (map_elsewhere), who take it that everything is left
-- until they are told.

-- The partitions of queues with an owner whose newest map is announced: nothing can become ready by it.
create or replace function @schema@.partitions_announced() returns int[]
language sql stable
begin atomic
    select array(select p.id from @schema@.queue_map as m
                   join @schema@.queue as q on q.id = m.queue_id and q.is_owned
                   join @schema@.partition as p on p.queue_id = q.id
                  where m.state = 'announced');
end;

-- Lets everybody write by a map, once no shard lets anybody write by the one before; false where it is open, or not the
-- queue's any more. Locks: the catalogue, the map's row, the queue's.
create or replace function @schema@.open_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint := @schema@.next_version();
begin
    update @schema@.queue_map set state = 'open' where queue_id = p_queue and epoch = p_epoch and state = 'announced';
    if not found then
        return false;
    end if;
    update @schema@.queue set version = v_version where id = p_queue;
    return true;
end $$;

-- Withdraws a map that is announced: a further one has the partitions of the one before. Each key is where it was, so
-- that nothing has to wait, and a shard that has not heard of any of it goes on by the map it knows. Nothing was ever
-- written by the one that is withdrawn, and nobody waits for its partitions. False where it is open, or not the queue's any
-- more. Locks: the catalogue, maps' rows, the queue's.
create or replace function @schema@.undo_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint := @schema@.next_version();
    v_before  record;
begin
    select b.partition_ids, b.homes into v_before
      from @schema@.queue_map as m join @schema@.queue_map as b on b.queue_id = m.queue_id and b.epoch = m.epoch - 1
     where m.queue_id = p_queue and m.epoch = p_epoch and m.state = 'announced';
    if not found then
        return false;
    end if;
    update @schema@.partition set state = 'unused'
     where queue_id = p_queue and id <> all (v_before.partition_ids) and state = 'current';
    perform @schema@.set_map(p_queue, v_version, v_before.partition_ids, v_before.homes, true, 'open');
    return true;
end $$;
