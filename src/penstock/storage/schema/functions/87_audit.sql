-- The audit. These run as the owner: a worker's role adds entries, ends its own and lets old ones go, by these only.

-- Writes an act down that is about to be done; the number of its entry. The same call again: the one that it has.
create or replace function @schema@.begin_audit(
    p_call uuid, p_actor text, p_source text, p_address text, p_act text, p_target text, p_detail jsonb) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_at timestamptz;
    v_id bigint;
begin
    loop
        v_id := (select id from @schema@.audit where call = p_call);
        exit when v_id is not null;
        v_at := clock_timestamp();
        insert into @schema@.audit (id, call, at, actor, source, address, database_role, act, target, detail)
        values ((extract(epoch from v_at) * 1000000)::bigint * 1024 + @schema@.here(), p_call, v_at, p_actor, p_source,
                p_address, session_user, p_act, p_target, p_detail)
        on conflict do nothing returning id into v_id;
        exit when v_id is not null;
    end loop;
    return v_id;
end $$;

-- Adds to an entry what came of the act, once. What a crash may lose of this reads as an act that nobody saw the end of,
-- so nobody waits for the disk. Locks: the entry.
create or replace function @schema@.end_audit(p_id bigint, p_outcome text, p_count bigint, p_detail jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update @schema@.audit set outcome = p_outcome, count = p_count, detail = detail || p_detail
     where id = p_id and outcome is null;
end $$;

-- Removes some entries that are older than so many days, and never those of the last day; how many. Locks: these entries.
create or replace function @schema@.forget_audit(p_days double precision, p_most int) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_before bigint := (extract(epoch from now()) * 1000000)::bigint * 1024 - (greatest(p_days, 1) * 86400e6 * 1024)::bigint;
    v_count  bigint;
begin
    delete from @schema@.audit
     where id = any (array(select id from @schema@.audit where id < v_before order by id limit p_most));
    get diagnostics v_count = row_count;
    return v_count;
end $$;
