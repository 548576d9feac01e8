-- name: lock_migrations
-- Whoever migrates or grants comes one after the other.
select pg_advisory_xact_lock(hashtext('@schema@.migrate'))

-- name: foreign_owner
-- Who owns the schema, where this session's role does not.
select nspowner::regrole::text from pg_namespace where nspname = '@schema@' and not pg_has_role(nspowner, 'usage')

-- name: oldest_user_of_tables
-- The other transaction that holds a lock on one of our tables or views, and has lasted longest.
select a.pid, a.application_name, extract(epoch from clock_timestamp() - a.xact_start)::float8
  from pg_locks as l join pg_class as c on c.oid = l.relation join pg_stat_activity as a on a.pid = l.pid
 where c.relnamespace = to_regnamespace('@schema@') and l.granted and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
 order by a.xact_start limit 1
