-- What follows from a key alone.

-- The key hash of docs/reference/key-hash: equal in Python, SQL and Spark.
create or replace function @schema@.h64(domain bytea, key bytea) returns bigint
language sql immutable strict parallel safe
return ('x' || encode(substr(sha256(domain || '\x00'::bytea || key), 1, 8), 'hex'))::bit(64)::bigint;

create or replace function @schema@.partition_of(key bytea, partitions int) returns int
language sql immutable strict parallel safe
return ((@schema@.h64('penstock/partition/v1'::bytea, key) & 9223372036854775807) % partitions)::int;

-- The shard on which an idempotency key is remembered, of those that its queue's keys are spread over.
create or replace function @schema@.home_of(idempotency_key text, homes smallint[]) returns smallint
language sql stable strict parallel safe
begin atomic
    select homes[1 + ((@schema@.h64('penstock/idempotency/v1'::bytea, convert_to(idempotency_key, 'UTF8'))
                       & 9223372036854775807) % 1024 % cardinality(homes))::int];
end;

-- An idempotency key as it is stored on queues with an owner, where it is unique for each ordering key.
create or replace function @schema@.scoped_idempotency_key(key bytea, idempotency_key text) returns text
language sql immutable parallel safe
return coalesce(encode(key, 'hex'), '') || ':' || idempotency_key;
