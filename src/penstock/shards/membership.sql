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

-- name: reserve_shard
-- See @schema@.reserve_shard. Locks: the catalogue.
select number, identity from @schema@.reserve_shard(%(identity)s::uuid, %(address)s)

-- name: end_joining
-- See @schema@.end_joining. Locks: the catalogue.
select @schema@.end_joining(%(number)s)
