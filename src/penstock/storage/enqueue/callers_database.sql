-- name: has_schema
-- Whether this database has been set up.
select to_regclass('@schema@.catalogue') is not null

-- name: identify_database
-- What this database is among the shards, and the oldest program that its functions serve.
select c.number, c.system, coalesce(f.oldest_program, 0) from @schema@.catalogue as c left join @schema@.function_set as f on true

-- name: read_identity
-- What this database is among the shards, and the version of its catalogue.
select number, identity, system, version from @schema@.catalogue
