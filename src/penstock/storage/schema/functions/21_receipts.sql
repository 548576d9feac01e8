-- What became of a call whose answer was lost behind a pooler.

-- Writes the receipt of a call whose jobs are written in this transaction; their first id. Of a call that was not written
-- (null) there is none. Refused (23505) where the call was looked for before it came.
create or replace function @schema@.note_written(p_token bigint, p_seconds double precision, p_first_id bigint) returns bigint
language plpgsql strict set search_path = pg_catalog, pg_temp as $$
begin
    insert into @schema@.receipt (token, first_id, kept_until)
    values (p_token, p_first_id, now() + make_interval(secs => p_seconds));
    return p_first_id;
end $$;

-- The first id of the call that bears this token; null: it was not written, and never will be. Waits a moment for one
-- that is just being written (55P03).
create or replace function @schema@.find_or_void_receipt(p_token bigint, p_seconds double precision) returns bigint
language plpgsql set lock_timeout = '1s' set search_path = pg_catalog, pg_temp as $$
begin
    insert into @schema@.receipt (token, kept_until) values (p_token, now() + make_interval(secs => p_seconds))
    on conflict do nothing;
    return (select first_id from @schema@.receipt where token = p_token);
end $$;
