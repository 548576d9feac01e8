-- name: has_schema
-- Whether this database has been set up.
select to_regclass('@schema@.catalogue') is not null

-- name: read_identity
-- What this database is among the shards, and the version of its catalogue.
select number, identity, system, version from @schema@.catalogue
