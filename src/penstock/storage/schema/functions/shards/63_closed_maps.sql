-- Maps that are closed on this shard.

-- Whether nobody writes here by these earlier maps, the lists parallel. Closes those that nobody has locked, and only
-- tries: see @schema@.close_maps. One that is not known here yet is not closed. Locks: rows of old maps, skipping those
-- that are locked.
create or replace function @schema@.are_closed(p_queues int[], p_epochs int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    for v_try in 1..2 loop
        if not exists (select from unnest(p_queues, p_epochs) as g(queue_id, epoch)
                        where not exists (select from @schema@.map_here as h
                                           where h.queue_id = g.queue_id and h.epoch = g.epoch and h.state = 'closed')) then
            return true;
        elsif v_try = 1 then
            perform @schema@.close_maps();
        end if;
    end loop;
    return false;
end $$;
