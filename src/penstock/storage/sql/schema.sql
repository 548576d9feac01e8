-- name: begin_step
-- For whoever changes the schema: no name means what others may have put into a schema of the path, and a lock is asked
-- for no longer than this, for others wait behind whoever asks.
set local search_path = pg_catalog, pg_temp; set local lock_timeout = '100ms'; set local client_min_messages = warning

-- name: hold_migrations
-- Whoever migrates or grants comes one after the other.
select pg_advisory_xact_lock(hashtext('@schema@.migrate'))

-- name: quote_schema
-- The schema's name as SQL takes it: as it is, unless it is one of SQL's own words.
select quote_ident('@schema@')

-- name: find_books
-- Whether there are the tables of before the first release, and those in which is noted what was applied.
select bool_or(relname = 'migration') is true, bool_or(relname = 'table_file') is true
  from pg_class where relnamespace = to_regnamespace('@schema@') and relname in ('migration', 'table_file')

-- name: open_books
-- What was applied: table files, and the one set of functions.
create schema if not exists @schema@;
create table @schema@.table_file (
    number     int primary key,
    name       text not null,
    checksum   text not null,
    applied_at timestamptz not null default now()
);
create table @schema@.function_set (
    is_only        boolean primary key default true constraint there_is_one_function_set check (is_only),
    version        int not null,
    oldest_program int not null,
    checksum       text not null,
    applied_at     timestamptz not null default now()
);

-- name: read_table_files
-- The table files that were applied here.
select number, name, checksum from @schema@.table_file

-- name: read_function_set
-- The set of functions that was applied here.
select version, oldest_program, checksum from @schema@.function_set

-- name: note_table_file
-- A table file was applied, in this transaction.
insert into @schema@.table_file (number, name, checksum) values ({number}, {name}, {checksum})

-- name: refuse_older_functions
-- For a script that is run later than it was printed: functions never give way to older ones.
do $$
begin
    if exists (select from @schema@.function_set where version >= {version}) then
        raise exception 'the database has functions of version {version} or later already';
    end if;
end $$

-- name: note_function_set
-- The set of functions was applied, in this transaction.
insert into @schema@.function_set (version, oldest_program, checksum) values ({version}, {oldest_program}, {checksum})
on conflict (is_only) do update set version = excluded.version, oldest_program = excluded.oldest_program,
    checksum = excluded.checksum, applied_at = excluded.applied_at

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
