-- Access tokens.

-- Enters a token, on the shard that leads (PS004 on another); the same again changes nothing. One name is of one token in
-- use at a time. Locks: the catalogue.
create or replace function @schema@.create_access_token(
    p_digest bytea, p_name text, p_role text, p_queues text[], p_tenant text, p_hides_args boolean, p_created_by text,
    p_expires_at timestamptz, p_seconds double precision) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.catalogue for no key update;
    if not @schema@.is_lead() then
        raise exception using errcode = 'PS004', message = 'another shard leads, and gives out tokens';
    elsif exists (select from @schema@.access_token where digest = p_digest) then
        return;
    elsif exists (select from @schema@.access_token
                   where name = p_name and revoked_at is null and (expires_at is null or expires_at > now())) then
        perform @schema@.refuse('name', format('there is a token %L in use: revoke it first, or choose another name', p_name));
    elsif p_expires_at <= now() then
        perform @schema@.refuse('expires', 'that has passed; give a time to come');
    end if;
    insert into @schema@.access_token (digest, name, role, queues, tenant, hides_args, created_by, expires_at)
    values (p_digest, p_name, p_role, p_queues, p_tenant, p_hides_args, p_created_by,
            coalesce(p_expires_at, now() + make_interval(secs => p_seconds)));
end $$;
