-- name: quote_schema
-- The schema's name as SQL takes it: as it is, unless it is one of SQL's own words.
select quote_ident('@schema@')

-- name: find_books
-- Whether there are the tables of before the first release, and those in which is noted what was applied.
select bool_or(relname = 'migration') is true, bool_or(relname = 'table_file') is true
  from pg_class where relnamespace = to_regnamespace('@schema@') and relname in ('migration', 'table_file')

-- name: read_table_files
-- The table files that were applied here.
select number, name, checksum from @schema@.table_file

-- name: read_function_set
-- The set of functions that was applied here.
select version, oldest_program, checksum from @schema@.function_set
