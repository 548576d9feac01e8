-- A person lets a halted key go on.

-- Lets a halted key go on; whether it was halted. Locks: its row in `halted`, then those of `idle_partition`, by id, as whoever
-- writes there.
create or replace function @schema@.release_key(p_queue int, p_key bytea) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    delete from @schema@.halted where queue_id = p_queue and key = p_key;
    if not found then
        return false;
    end if;
    delete from @schema@.idle_partition
     where partition_id = any (array(select partition_id from @schema@.idle_partition
                                      where partition_id in (select id from @schema@.partition where queue_id = p_queue)
                                      order by partition_id for update));
    perform @schema@.wake(p_queue);
    return true;
end $$;
