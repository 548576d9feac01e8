-- Resize: a queue gets another number of partitions while it is used. On a queue with an owner that is a new map of
-- keys to partitions, known by its epoch. Producers lock the map they write by (@schema@.lock_map); the old one is
-- closed when nobody has it locked any more, and drained when nothing is left of what was written by it. Until then a
-- job waits for what earlier maps sent to its key's earlier partitions.
--
-- Over several shards that takes two steps: see shards/94_announced_maps.sql.

-- The partitions of a queue by number, as many as are wanted: those of the map of now, and further ones: at the last place
-- that a number had, if that may be used, and made where there is none.
create or replace function @schema@.partitions_for(p_queue int, p_partitions int, p_avoid int[] default '{}') returns int[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ids    int[];
    v_id     int;
    v_number int;
begin
    select m.partition_ids[1:p_partitions] into v_ids
      from @schema@.queue as q join @schema@.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch where q.id = p_queue;
    v_ids := coalesce(v_ids, '{}');
    for v_number in cardinality(v_ids) .. p_partitions - 1 loop
        v_id := @schema@.former_place(p_queue, v_number);
        if v_id is null then
            insert into @schema@.partition (queue_id, number, name, shard)
            select q.id, v_number, case v_number when 0 then q.name else q.name || '__p' || v_number end,
                   @schema@.shard_for(q.id, v_number, p_avoid, v_ids)
              from @schema@.queue as q where q.id = p_queue
            returning id into v_id;
        end if;
        v_ids := v_ids || v_id;
    end loop;
    return v_ids;
end $$;

-- Sets the number of partitions; whether anything changed. Locks: the catalogue, the map's row, the queue's.
create or replace function @schema@.resize(p_name text, p_partitions int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   @schema@.queue;
    v_version bigint;
begin
    if not exists (select from @schema@.queue where name = p_name and partitions <> p_partitions) then
        return false;
    end if;
    v_version := @schema@.next_version();
    v_queue := (select q from @schema@.queue as q where q.name = p_name);
    if v_queue.partitions = p_partitions then
        return false;
    end if;
    perform @schema@.change_map(v_queue, v_version, @schema@.partitions_for(v_queue.id, p_partitions), false);
    return true;
end $$;
