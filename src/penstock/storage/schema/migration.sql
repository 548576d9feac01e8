-- name: lock_migrations
-- Whoever migrates or grants comes one after the other.
do $$ begin perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('@schema@.migrate')); end $$

-- name: refuse_foreign_schema
-- For whoever changes the schema, in each transaction, under the lock. Whoever owns a schema can change what is made in
-- it, so it has to be the role that makes it, even for a superuser; and a schema in which there is anything, but not
-- Penstock's books, is another program's. Extensions count; default privileges do not.
do $$
declare
    v_schema oid := to_regnamespace('@schema@');
    v_owner oid := (select nspowner from pg_namespace where oid = v_schema);
    v_is_ours boolean := (select count(*) = 2 from pg_class
                           where relnamespace = v_schema and relname in ('table_file', 'function_set'));
    v_found text[];
    v_count bigint;
begin
    if exists (select from pg_roles
                where rolname = current_user and oid <> v_owner and (rolsuper or not pg_has_role(v_owner, 'usage'))) then
        raise exception using errcode = '42501',
            message = format('schema @schema@ belongs to the database role %s, who could change what is made in it',
                             v_owner::regrole),
            hint = format('migrate as %s%s', v_owner::regrole, case when not v_is_ours then
                ', or choose another name for the schema, with schema=NAME or ?schema=NAME in the URL' end);
    end if;
    if v_is_ours then
        return;
    end if;
    -- Tables and views are told first: what is most likely to be known by its name.
    select (array_agg(pg_describe_object(d.classid, d.objid, 0) order by c.relkind is null, c.relkind = 'S', d.objid))[:3],
           count(*)
      into v_found, v_count
      from pg_depend as d left join pg_class as c on d.classid = 'pg_class'::regclass and c.oid = d.objid
     where d.refclassid = 'pg_namespace'::regclass and d.refobjid = v_schema and d.deptype = 'n';
    if v_count > 0 then
        raise exception using errcode = '42P06',
            message = format('schema @schema@ is used by something else: it holds %s%s', array_to_string(v_found, ', '),
                             case when v_count > 3 then format(' and %s more', v_count - 3) else '' end),
            hint = 'choose another name for the schema, with schema=NAME or ?schema=NAME in the URL; '
                   || 'one that exists already has to be empty';
    end if;
end $$

-- name: oldest_user_of_tables
-- The other transaction that holds a lock on one of our tables or views, and has lasted longest.
select a.pid, a.application_name, extract(epoch from clock_timestamp() - a.xact_start)::float8
  from pg_locks as l join pg_class as c on c.oid = l.relation join pg_stat_activity as a on a.pid = l.pid
 where c.relnamespace = to_regnamespace('@schema@') and l.granted and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
 order by a.xact_start limit 1
