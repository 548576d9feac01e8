-- Range numbers that part a table into about equal shares.

-- The numbers that part a sample into so many, without repeats.
create or replace function @schema@.bounds(p_sample bigint[], p_parts int) returns bigint[]
language sql immutable
begin atomic
    select array(
        select distinct b from unnest((
            select percentile_disc(array(select n::float8 / p_parts from generate_series(1, p_parts - 1) as n))
                   within group (order by s) from unnest(p_sample) as s)) as b
         where b is not null order by b);
end;

-- Range numbers that part history into p_parts of about the same size (null: as many as its size suggests). Large
-- tables are sampled.
create or replace function @schema@.history_bounds(p_parts int, p_only int, p_cold int[]) returns bigint[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_slice  int;
    v_table  regclass;
    v_rows   real;
    v_bytes  bigint := 0;
    v_some   bigint[];
    v_sample bigint[] := '{}';
    v_parts  int;
begin
    for v_slice in
        select number from @schema@.slice
         where used_from is not null and (number = p_only or p_only is null and number <> all (p_cold))
    loop
        v_table := to_regclass('@schema@.finished_' || v_slice);
        continue when v_table is null;
        v_bytes := v_bytes + pg_total_relation_size(v_table);
        select reltuples into v_rows from pg_class where oid = v_table;
        execute format('select array_agg(range) from %s tablesample system (%s)', v_table,
                       least(100, 10000000 / greatest(v_rows, 1))) into v_some;
        v_sample := v_sample || v_some;
    end loop;
    v_parts := coalesce(p_parts, least(64, greatest(1, v_bytes / (4 * 1024 * 1024))));
    return @schema@.bounds(v_sample, v_parts);
end $$;

-- The same of what has not ended: 50,000 jobs to a part, where p_parts does not say.
create or replace function @schema@.waiting_bounds(p_parts int) returns bigint[]
language sql stable
begin atomic
    select @schema@.bounds(
        array(select range from @schema@.ready union all select range from @schema@.lease
              union all select range from @schema@.scheduled union all select job_id / 1024 from @schema@.blocked),
        coalesce(p_parts, (select least(64, greatest(1, sum(opened + scheduled + blocked) / 50000))::int from @schema@.depth), 1));
end;

create or replace function @schema@.failure_bounds(p_parts int) returns bigint[]
language sql stable
begin atomic
    select @schema@.bounds(array_agg(job_id / 1024), coalesce(p_parts, least(64, greatest(1, count(*) / 100000))::int))
      from @schema@.failure;
end;
