-- name: has_schema
-- Whether this database has been set up.
select to_regclass('@schema@.catalogue') is not null

-- name: read_identity
-- What this database is among the shards, and the version of its catalogue.
select number, identity, system, version from @schema@.catalogue

-- name: read_shards
-- Every shard that this catalogue knows.
select number, identity, address, state from @schema@.shard order by number

-- name: read_digest
-- See @schema@.catalogue_digest, and the version it is of: in one statement, for between two it may change. Reads the
-- whole catalogue: for those who open an app.
select version, @schema@.catalogue_digest() from @schema@.catalogue

-- name: take_up_shard
-- See @schema@.take_up_shard. Locks: the catalogue.
select @schema@.take_up_shard(%(number)s, %(identity)s::uuid, %(system)s::uuid)

-- name: enter_shard
-- See @schema@.enter_shard. Locks: the catalogue, where anything changes.
select @schema@.enter_shard(%(number)s, %(identity)s::uuid, %(address)s)

-- name: catalogue_since
-- What changed in the catalogue after a version. See @schema@.catalogue_since.
select @schema@.catalogue_since(%(version)s)

-- name: take_catalogue
-- See @schema@.take_catalogue. Locks: the catalogue, then the rows that change.
select @schema@.take_catalogue(%(told)s::json)

-- name: reserve_shard
-- See @schema@.reserve_shard. Locks: the catalogue.
select number, identity from @schema@.reserve_shard(%(identity)s::uuid, %(address)s)

-- name: set_shard_state
-- See @schema@.set_shard_state. Locks: the catalogue.
select @schema@.set_shard_state(%(number)s, %(state)s)

-- name: read_range_number
-- The range number that was drawn last.
select last_value from @schema@.range_number

-- name: draw_up_to
-- See @schema@.draw_up_to.
select @schema@.draw_up_to(%(range)s, %(most)s)

-- name: start_ranges_after
-- See @schema@.start_ranges_after.
select @schema@.start_ranges_after(%(range)s)
