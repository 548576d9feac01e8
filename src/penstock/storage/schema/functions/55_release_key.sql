-- A person lets a halted key go on.

-- Lets a halted key go on; whether it was halted.
create or replace function @schema@.release_key(p_queue int, p_key bytea) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    delete from @schema@.halted where queue_id = p_queue and key = p_key;
    if not found then
        return false;
    end if;
    delete from @schema@.idle_partition where partition_id in (select id from @schema@.partition where queue_id = p_queue);
    perform @schema@.wake(p_queue);
    return true;
end $$;
