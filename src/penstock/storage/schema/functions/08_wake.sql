-- Workers that sleep until something comes.

-- Wakes the workers that sleep on a queue; free where none does.
create or replace function @schema@.wake(p_queue int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.sleeper where queue_id = p_queue) then
        perform pg_notify('@schema@_' || p_queue, '');
    end if;
end $$;
