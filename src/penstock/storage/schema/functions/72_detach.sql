-- What only the owner can do with tables, as functions for workers.

-- Takes a table out of `job` or `finished` for a worker that does not own them; false where somebody holds it.
-- PostgreSQL detaches CONCURRENTLY only for the owner and outside of functions. This way everybody waits for as long as
-- the lock is asked for and held. So first those who use the table now are waited for, without a lock, a second at
-- most; and then the lock is asked for only for about as long as their transactions took to end.
create or replace function @schema@.detach_table(p_parent text, p_table text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_parent  oid := to_regclass('@schema@.' || p_parent);
    -- Where a detach of the owner's was interrupted nobody comes to the table by its parent any more.
    v_begun   boolean := @schema@.standing(p_table, v_parent) = 'pending';
    v_tables  oid[] := array[to_regclass('@schema@.' || p_table), case when not v_begun then v_parent end];
    v_holders text[];
    v_since   timestamptz := clock_timestamp();
begin
    if p_parent not in ('job', 'finished') or p_table !~ ('^' || p_parent || '_[0-9]+$') then
        perform @schema@.refuse('table', 'must be a table partition of job or finished');
    end if;
    v_holders := @schema@.holders(v_tables);
    while v_holders && @schema@.holders(v_tables) loop
        if clock_timestamp() > v_since + interval '1 second' then
            return false;
        end if;
        perform pg_sleep(0.005);
    end loop;
    perform set_config('lock_timeout', (100 + 1000 * extract(epoch from clock_timestamp() - v_since))::int::text, true);
    execute format('alter table @schema@.%I detach partition @schema@.%I %s', p_parent, p_table,
                   case when v_begun then 'finalize' end);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- The transactions that use one of these tables, but for this one.
create or replace function @schema@.holders(p_tables oid[]) returns text[]
language sql volatile
begin atomic
    select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
     where locktype = 'relation' and relation = any (p_tables) and granted and pid is distinct from pg_backend_pid()
       and database = (select oid from pg_database where datname = current_database());
end;

-- Drops a table that was taken out of `job` or `finished`; one that is gone already is no error.
create or replace function @schema@.drop_table(p_table text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if p_table !~ '^(job|finished)_[0-9]+$' or exists (
           select from pg_inherits where inhrelid = to_regclass('@schema@.' || p_table)) then
        perform @schema@.refuse('table', 'must be one that was taken out of job or finished');
    end if;
    execute format('drop table if exists @schema@.%I', p_table);
end $$;
