-- The shard that leads next takes over what was decided about loads.

-- What loads came to, for the shard that leads next. Nobody decides about a load here before this transaction ends.
create or replace function @schema@.loads_decided() returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtext('@schema@.loads'));
    return json_build_object(
        'loads', (select coalesce(json_agg(l), '[]') from @schema@.load as l),
        'batches', (select coalesce(json_agg(b), '[]') from @schema@.load_batch as b),
        'shares', (select coalesce(json_agg(p), '[]') from @schema@.load_share as p),
        'aborts', (select coalesce(json_agg(a), '[]') from @schema@.load_abort as a));
end $$;

-- Takes over what another shard decided about loads, once: what a batch came to there is added to what it came to here.
create or replace function @schema@.take_loads(p_given json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into @schema@.load (name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at, trace)
    select name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at, trace
      from json_populate_recordset(null::@schema@.load, p_given -> 'loads')
    on conflict (name) do nothing;
    insert into @schema@.load_batch as b (load_id, batch, rows, duplicates, bad_rows, published_at, commit_name)
    select n.id, g.batch, g.rows, g.duplicates, g.bad_rows, g.published_at, g.commit_name
      from json_populate_recordset(null::@schema@.load_batch, p_given -> 'batches') as g
      join json_populate_recordset(null::@schema@.load, p_given -> 'loads') as l on l.id = g.load_id
      join @schema@.load as n on n.name = l.name
     where g.commit_name is not null
    on conflict (load_id, batch) do update
       set rows = b.rows + excluded.rows, duplicates = b.duplicates + excluded.duplicates,
           bad_rows = b.bad_rows + excluded.bad_rows, published_at = excluded.published_at, commit_name = excluded.commit_name
     where b.commit_name is null;
    insert into @schema@.load_share (load_id, batch, shard, commit_name, rows, duplicates, published_at)
    select n.id, g.batch, g.shard, g.commit_name, g.rows, g.duplicates, g.published_at
      from json_populate_recordset(null::@schema@.load_share, p_given -> 'shares') as g
      join json_populate_recordset(null::@schema@.load, p_given -> 'loads') as l on l.id = g.load_id
      join @schema@.load as n on n.name = l.name
     -- What was published here is in the batch itself.
     where g.shard <> @schema@.here()
    on conflict do nothing;
    insert into @schema@.load_abort (commit_name, at)
    select commit_name, at from json_populate_recordset(null::@schema@.load_abort, p_given -> 'aborts')
    on conflict do nothing;
end $$;
