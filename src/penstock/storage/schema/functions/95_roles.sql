-- Database roles. The owner migrates and may do everything. Of the others each is of one kind:
--
--   worker    reads and writes rows, and has the few acts on tables that upkeep needs as functions
--   producer  calls @schema@.enqueue, and can do nothing else
--   reader    reads, but for access tokens
--
-- Everybody else has nothing. The set ends with `renew_grants`, so that what was made is closed to the public and open to
-- those it is for.
--
-- Functions that are `security definer` run with the owner's rights, whoever calls them: what a producer may do, and the
-- acts on tables. All others run with the rights of the caller. A trigger at commit is none of its statement's: it needs
-- them itself.

-- Everything there is, and what a kind of role may do with it; null: nothing. No kind may truncate or create triggers:
-- the owner's functions would run those.
create or replace function @schema@.rights(p_kind text) returns table (object text, privileges text)
language sql stable
begin atomic
    select 'schema @schema@', case when p_kind in ('worker', 'producer', 'reader') then 'usage' end
    union all
    select format('sequence @schema@.%I', relname),
           case p_kind when 'worker' then 'select, usage' when 'reader' then 'select' end
      from pg_class where relnamespace = '@schema@'::regnamespace and relkind = 'S'
    union all
    select format('table @schema@.%I', relname),
           case when p_kind = 'reader' and relname = 'access_token' then null
                when p_kind = 'reader'
                  or p_kind = 'worker' and (relkind = 'v' or relname in ('table_file', 'function_set', 'grantee', 'audit'))
                then 'select'
                when p_kind = 'worker' then 'select, insert, update, delete' end
      from pg_class where relnamespace = '@schema@'::regnamespace and relkind in ('r', 'p', 'v')
    union all
    select format('function @schema@.%I(%s)', proname, pg_get_function_identity_arguments(oid)),
           case when prorettype = 'trigger'::regtype then null
                when p_kind = 'worker' or p_kind = 'reader' and not prosecdef
                  or p_kind = 'producer' and proname = 'enqueue' then 'execute' end
      from pg_proc where pronamespace = '@schema@'::regnamespace;
end;

-- Gives a role what its kind may do, and takes from it whatever else it had here; 'none' takes all. Called by the owner.
-- Locks: migrations and other grants, and whoever makes or drops tables: none of those can come without the grant.
create or replace function @schema@.grant_to(p_role text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_owner regrole := (select relowner from pg_class where oid = '@schema@.grantee'::regclass);
    v_right record;
begin
    if p_kind not in ('worker', 'producer', 'reader', 'none') then
        perform @schema@.refuse('kind', 'must be worker, producer, reader or none');
    elsif not exists (select from pg_roles where rolname = p_role) then
        perform @schema@.refuse('role', format('there is no database role %L: create it first, as in create role %I login', p_role, p_role));
    elsif pg_has_role(p_role, v_owner, 'member') then
        perform @schema@.refuse('role', format('%L owns the schema, or acts for its owner: it may do everything already', p_role));
    elsif not pg_has_role(v_owner, 'usage') then
        perform @schema@.refuse('role', format('only %s, who owns the schema, can grant: connect as that role', v_owner));
    end if;
    perform pg_advisory_xact_lock(hashtext('@schema@.' || lock)) from unnest(array['migrate', 'prune']) as lock;
    lock table @schema@.job_table, @schema@.slice in share update exclusive mode;
    -- Tables made ahead later.
    execute format('alter default privileges for role %s in schema @schema@ revoke all on tables from %I', v_owner, p_role);
    if p_kind in ('worker', 'reader') then
        execute format('alter default privileges for role %s in schema @schema@ grant %s on tables to %I', v_owner,
                       case p_kind when 'worker' then 'select, insert, update, delete' else 'select' end, p_role);
    end if;
    for v_right in select r.object, r.privileges from @schema@.rights(p_kind) as r loop
        execute format('revoke all on %s from %I', v_right.object, p_role);
        if v_right.privileges is not null then
            execute format('grant %s on %s to %I', v_right.privileges, v_right.object, p_role);
        end if;
    end loop;
    delete from @schema@.grantee where role = p_role;
    insert into @schema@.grantee (role, kind) select p_role, p_kind where p_kind <> 'none';
end $$;

-- Grants again to everybody what was granted, now that there is more, and closes all of it to the public.
create or replace function @schema@.renew_grants() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_object text;
begin
    for v_object in select object from @schema@.rights('none') loop
        execute format('revoke all on %s from public', v_object);
    end loop;
    -- Who was dropped, or acts for the owner by now, is none of these any more.
    delete from @schema@.grantee where not exists (
        select from pg_roles as r, pg_class as c
         where r.rolname = role and c.oid = '@schema@.grantee'::regclass and not pg_has_role(r.oid, c.relowner, 'member'));
    perform @schema@.grant_to(role, kind) from @schema@.grantee;
end $$;
