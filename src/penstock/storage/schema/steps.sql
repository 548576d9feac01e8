-- name: begin_step
-- For whoever changes the schema: no name means what others may have put into a schema of the path, and a lock is asked
-- for no longer than this, for others wait behind whoever asks.
set local search_path = pg_catalog, pg_temp; set local lock_timeout = '100ms'; set local client_min_messages = warning

-- name: begin_script
-- For the whole of a script, as for each of its steps.
set search_path = pg_catalog, pg_temp; set client_min_messages = warning

-- name: refuse_other_base
-- For a script, which is run later than it was printed: it fits databases that had what it was printed for, also where some
-- or all of it has been done since.
do $$
declare
    v_checksums jsonb := {checksums};
    v_problem text;
begin
    if to_regclass('@schema@.function_set') is not null then
        select 'its table file ' || number || ' is another' into v_problem
          from @schema@.table_file where v_checksums ->> number::text <> checksum;
        if not found then
            select case when oldest_program > {version} then 'its functions are for programs of version ' || oldest_program
                        else 'its functions are others of the same version' end
              into v_problem from @schema@.function_set
             where oldest_program > {version} or (version = {version} and checksum <> {checksum});
        end if;
        if v_problem is null then
            select 'it lacks table file ' || min(number) into v_problem
              from unnest({applied}::int[]) as number
             where number not in (select f.number from @schema@.table_file as f) having count(*) > 0;
        end if;
    elsif cardinality({applied}::int[]) > 0 then
        v_problem := 'it has no such schema of Penstock''s';
    end if;
    if v_problem is not null then
        raise exception 'this script was not made for schema @schema@ of this database: %', v_problem
            using hint = 'print it anew with `penstock sql`';
    end if;
end $$

-- name: is_books_step_due
-- Whether there is nothing yet to note in what was applied.
select to_regclass('@schema@.table_file') is null as is_due

-- name: is_table_file_due
-- Whether a table file was not applied yet.
select not exists (select from @schema@.table_file where number = {number}) as is_due

-- name: is_function_set_due
-- Whether the functions are older ones, or none.
select not exists (select from @schema@.function_set where version >= {version}) as is_due

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
