-- Pruning: tables that are behind are let go whole, without anybody waiting for it.
--
-- A table is passed once nothing new is directed to it: the numbers have passed a table of jobs, a newer slice is
-- in use. Transactions that began before may still write there, so those in progress at that moment are noted, and
-- the table is sealed when the last of them has ended. From then on its rows only lose their use, one by one.

-- The other transactions of this database, by their virtual ids: they have one before they write anything.
create or replace function @schema@.transactions_in_progress() returns text[]
language sql volatile
begin atomic
    select coalesce(array_agg(l.virtualtransaction), '{}')
      from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
     where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.granted and l.pid <> pg_backend_pid()
       and a.datid = (select oid from pg_database where datname = current_database());
end;

-- Whether nobody can write to a passed table any more: all its possible writers have ended, and no prepared
-- transaction (which has no virtual id) holds the table it belongs to.
create or replace function @schema@.is_sealed(p_writers text[], p_parent regclass) returns boolean
language sql volatile
begin atomic
    select p_writers is not null and not p_writers && @schema@.transactions_in_progress()
       and not exists (select from pg_locks where relation = p_parent and pid is null and locktype = 'relation');
end;

-- Notes the possible writers of tables that were passed. That was committed before this statement began.
create or replace function @schema@.note_writers() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_passed bigint := (select last_value from @schema@.range_number);
    v_slice  int := @schema@.current_slice();
    v_writers text[];
begin
    v_writers := @schema@.transactions_in_progress();
    update @schema@.job_table set writers = v_writers where writers is null and high <= v_passed;
    update @schema@.slice set writers = v_writers where writers is null and number < v_slice;
end $$;

-- Where a table stands: attached, pending (its detach was interrupted), alone, or gone.
create or replace function @schema@.standing(p_table text, p_parent regclass) returns text
language sql stable
begin atomic
    select case when c.oid is null then 'gone' when i.inhrelid is null then 'alone'
                when i.inhdetachpending then 'pending' else 'attached' end
      from (select to_regclass('@schema@.' || p_table) as oid) as c
      left join pg_inherits as i on i.inhrelid = c.oid and i.inhparent = p_parent;
end;
