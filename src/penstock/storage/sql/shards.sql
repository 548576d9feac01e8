-- name: has_schema
select to_regclass('penstock.catalogue') is not null

-- name: read_identity
select number, identity, system, version from penstock.catalogue

-- name: read_shards
select number, identity, address, state from penstock.shard order by number

-- name: read_digest
-- See penstock.catalogue_digest, and the version it is of: in one statement, for between two it may change. Reads the
-- whole catalogue: for those who open an app.
select version, penstock.catalogue_digest() from penstock.catalogue

-- name: take_up_shard
-- See penstock.take_up_shard. Locks: the catalogue.
select penstock.take_up_shard(%(number)s, %(identity)s::uuid, %(system)s::uuid)

-- name: enter_shard
-- See penstock.enter_shard. Locks: the catalogue, where anything changes.
select penstock.enter_shard(%(number)s, %(identity)s::uuid, %(address)s)

-- name: catalogue_since
select penstock.catalogue_since(%(version)s)

-- name: take_catalogue
-- See penstock.take_catalogue. Locks: the catalogue, then the rows that change.
select penstock.take_catalogue(%(told)s::json)

-- name: reserve_shard
-- See penstock.reserve_shard. Locks: the catalogue.
select number, identity from penstock.reserve_shard(%(identity)s::uuid, %(address)s)

-- name: set_shard_state
-- See penstock.set_shard_state. Locks: the catalogue.
select penstock.set_shard_state(%(number)s, %(state)s)

-- name: read_range_number
select last_value from penstock.range_number

-- name: draw_up_to
-- See penstock.draw_up_to.
select penstock.draw_up_to(%(range)s, %(most)s)

-- name: start_ranges_after
-- See penstock.start_ranges_after.
select penstock.start_ranges_after(%(range)s)
