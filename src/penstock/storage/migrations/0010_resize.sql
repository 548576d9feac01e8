-- breaking: no
-- Resize: a queue gets another number of partitions while it is used. On a queue with an owner that is a new map of
-- keys to partitions, known by its epoch. Producers hold the map they write by (penstock.lock_map); the old one is closed
-- when nobody holds it any more, and drained when nothing is left of what was written by it. Until then a job waits for
-- what earlier maps sent to its key's earlier partitions.

-- Sets the number of partitions; whether anything changed. The map's row is changed first: a producer above READ
-- COMMITTED holds it, and finds by it that its snapshot is old. Partitions are added, never taken away: those beyond the
-- number are served until they are empty. Locks: the map's row, then the queue's.
create function penstock.resize(p_name text, p_partitions int) returns boolean
language plpgsql as $$
declare
    v_before penstock.queue;
    v_queue  penstock.queue;
begin
    loop
        select * into v_before from penstock.queue where name = p_name;
        if v_before.id is null or v_before.partitions = p_partitions then
            return false;
        end if;
        update penstock.queue_map set partitions = case when v_before.is_owned then partitions else p_partitions end
         where queue_id = v_before.id and epoch = v_before.epoch;
        select * into v_queue from penstock.queue where id = v_before.id for no key update;
        exit when v_queue.epoch = v_before.epoch and v_queue.partitions = v_before.partitions;
    end loop;
    insert into penstock.partition (queue_id, number, name)
    select v_queue.id, n, case n when 0 then p_name else p_name || '__p' || n end
      from generate_series(0, p_partitions - 1) as n
    on conflict (queue_id, number) do nothing;
    update penstock.queue set partitions = p_partitions, epoch = epoch + is_owned::int where id = v_queue.id;
    if v_queue.is_owned then
        insert into penstock.queue_map (queue_id, epoch, partitions) values (v_queue.id, v_queue.epoch + 1, p_partitions);
    end if;
    return true;
end $$;
