-- The last step before a shard is drained: nobody writes to it any more.

-- From now on nobody writes jobs to this shard, nor brings any; false where somebody is just doing so. Only where it is
-- being drained and has no partition in use. Whoever goes by a map of long ago is refused (PS007). Locks: the tables of
-- jobs and arrivals against writers, for a moment.
create or replace function @schema@.end_writes() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.partition where state = 'current' and shard = @schema@.here())
       or not exists (select from @schema@.shard where number = @schema@.here() and state in ('draining', 'drained')) then
        perform @schema@.refuse('shard', 'this shard is in use');
    end if;
    if not exists (select from pg_trigger where tgname = 'no_writes_any_more' and tgrelid = '@schema@.job'::regclass) then
        perform set_config('lock_timeout', '100ms', true);
        create trigger no_writes_any_more before insert on @schema@.arrival for each statement execute function @schema@.refuse_writes();
        create trigger no_writes_any_more before insert on @schema@.job for each statement execute function @schema@.refuse_writes();
    end if;
    return true;
exception when lock_not_available then
    return false;
end $$;
