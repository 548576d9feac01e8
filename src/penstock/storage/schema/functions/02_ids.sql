-- What an id tells, and what is said with an error.

create or replace function @schema@.here() returns smallint
language sql stable parallel safe
begin atomic
    select number from @schema@.catalogue;
end;

create or replace function @schema@.shard_of(p_job bigint) returns int
language sql immutable strict parallel safe
return ((p_job >> 10) & 1023)::int;

-- Refuses bad input with one kind of error, which names the field.
create or replace function @schema@.refuse(field text, problem text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = '22023', message = format('InvalidInput: %s: %s', field, problem);
end $$;

-- The attributes of a job that is to wait for a time have that: it is told when nothing waits any more. Null: it waits for none.
create or replace function @schema@.with_run_at(p_attributes jsonb, p_run_at timestamptz) returns jsonb
language sql stable parallel safe
return case when p_run_at is null then p_attributes
            else coalesce(p_attributes, '{}') || jsonb_build_object('run_at', p_run_at) end;
