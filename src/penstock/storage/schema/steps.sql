-- name: begin_step
-- For whoever changes the schema: no name means what others may have put into a schema of the path, and a lock is asked
-- for no longer than this, for others wait behind whoever asks.
set local search_path = pg_catalog, pg_temp; set local lock_timeout = '100ms'; set local client_min_messages = warning

-- name: create_books
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
