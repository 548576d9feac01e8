-- Changed: what it returns is the same. Every settle calls it.
create or replace function @schema@.current_slice() returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (select number from @schema@.slice where used_from is not null order by number desc limit 1);
end $$;

-- New, and instead of load_of, which has another argument by this name.
create or replace function @schema@.load_or(p_job bigint, p_default text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into @schema@.lookup (job_id) values (p_job);
    return coalesce((select l.name from @schema@.load_range as r join @schema@.load as l on l.id = r.load_id
                      where r.range = p_job / 1024), p_default);
end $$;
