-- name: has_schema
-- Whether this database has been set up.
select to_regclass('@schema@.catalogue') is not null
