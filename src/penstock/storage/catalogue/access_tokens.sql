-- name: create_access_token
-- See @schema@.create_access_token. Locks: the catalogue.
select @schema@.create_access_token(
    %(digest)s, %(name)s, %(role)s, %(queues)s::text[], %(tenant)s, %(hides_args)s, %(created_by)s,
    %(expires_at)s::timestamptz, %(seconds)s::double precision)

-- name: read_access_tokens
-- Every token there ever was, and for how many seconds more those are good that expire. Reads the whole table.
select digest, name, role, queues, tenant, hides_args, created_at, created_by, expires_at, revoked_at,
       extract(epoch from expires_at - clock_timestamp())::double precision
  from @schema@.access_token

-- name: revoke_access_token
-- Revokes the tokens of a name, and leaves those that were revoked as they are; their digests. Locks: their rows.
update @schema@.access_token set revoked_at = coalesce(revoked_at, clock_timestamp()) where name = %(name)s returning digest

-- name: take_access_tokens
-- Takes over what other shards have: tokens that are missing here, and that others were revoked. Locks: their rows.
insert into @schema@.access_token as t
       (digest, name, role, queues, tenant, hides_args, created_at, created_by, expires_at, revoked_at)
select digest, name, role, queues, tenant, hides_args, created_at, created_by, expires_at, revoked_at
  from json_populate_recordset(null::@schema@.access_token, %(tokens)s::json)
on conflict (digest) do update set revoked_at = least(t.revoked_at, excluded.revoked_at)
 where t.revoked_at is distinct from least(t.revoked_at, excluded.revoked_at)
