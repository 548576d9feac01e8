-- name: quote_schema
-- The schema's name as SQL takes it: as it is, unless it is one of SQL's own words.
select quote_ident('@schema@')

-- name: find_books
-- Whether there are the tables in which is noted what was applied.
select count(*) = 2
  from pg_class where relnamespace = to_regnamespace('@schema@') and relname in ('table_file', 'function_set')

-- name: read_table_files
-- The table files that were applied here.
select number, name, checksum from @schema@.table_file

-- name: read_function_set
-- The set of functions that was applied here.
select version, oldest_program, checksum from @schema@.function_set

-- name: schema_owner
-- Who owns the schema, where it is there.
select nspowner::regrole::text from pg_namespace where nspname = '@schema@'
