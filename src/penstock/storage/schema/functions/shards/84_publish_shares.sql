-- The share of a load that another shard decides about.

-- Keeps stages that a commit on shard p_decider is to decide about, if they can be published: whatever could be refused is
-- refused here. How many rows they have. Once for each commit. Locks: the queue's map (shared), the ranges.
create or replace function @schema@.prepare_stages(
    p_commit text, p_decider smallint, p_name text, p_queue text, p_is_stream boolean, p_origin text, p_stages text[],
    p_counts int[], p_homes smallint[]) returns bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue @schema@.queue;
    v_load  @schema@.load;
    v_ranges @schema@.range_to_publish[];
    v_rows  bigint;
begin
    perform @schema@.lock_map_of_load(p_queue);
    v_queue := (select q from @schema@.queue as q where q.name = p_queue);
    perform @schema@.refuse_deleted(v_queue.id is null);
    select rows into v_rows from @schema@.prepared_stages where commit_name = p_commit;
    if found then
        return v_rows;
    end if;
    v_load := (select l from @schema@.load as l where l.name = p_name);
    if v_load.id is not null then
        perform @schema@.check_load(v_load, v_queue, p_is_stream, p_origin);
    end if;
    with prepared as (
        update @schema@.load_range as r set commit_name = p_commit, stage_number = s.stage_number
          from unnest(p_stages) with ordinality as s(stage, stage_number)
         where r.stage = s.stage and r.load_id is null and r.commit_name is null
        returning r.range, r.stage_number, r.partition_id, r.priority, r.run_at, r.size, r.epoch, r.has_idempotency_keys, r.task
    )
    select coalesce(array_agg(row(range, stage_number, partition_id, priority, run_at, size, epoch, has_idempotency_keys, task, null)::@schema@.range_to_publish),
                    '{}'),
           coalesce(sum(size), 0)
      into v_ranges, v_rows from prepared;
    perform @schema@.check_ranges(v_queue, v_ranges, (select sum(n) from unnest(p_counts) as n), p_homes);
    perform @schema@.check_length(v_queue, @schema@.route_anew(v_queue, v_ranges));
    insert into @schema@.prepared_stages (commit_name, decider, queue_id, epoch, ranges, rows)
    values (p_commit, p_decider, v_queue.id, v_queue.epoch, cardinality(v_ranges), v_rows);
    return v_rows;
end $$;

-- Publishes the stages that are prepared here, once their commit was decided: by the map of then, which
-- nobody has closed since. Once for each batch. Locks: the load's row, the ranges, the idempotency keys in order.
create or replace function @schema@.publish_share(
    p_commit text, p_name text, p_queue text, p_is_stream boolean, p_origin text, p_batch bigint, p_is_paused boolean,
    p_trace jsonb, out rows bigint, out duplicates bigint)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue @schema@.queue;
    v_load  @schema@.load;
    v_prepared  record;
    v_ranges @schema@.range_to_publish[];
begin
    v_queue := (select q from @schema@.queue as q where q.name = p_queue);
    insert into @schema@.load (name, queue_id, is_stream, origin, is_paused, trace)
    values (p_name, v_queue.id, p_is_stream, p_origin, p_is_paused, p_trace) on conflict do nothing;
    v_load := (select l from @schema@.load as l where l.name = p_name for no key update);
    select b.rows, b.duplicates into rows, duplicates
      from @schema@.load_batch as b where b.load_id = v_load.id and b.batch = p_batch;
    if found then
        return;
    end if;
    perform @schema@.check_load(v_load, v_queue, p_is_stream, p_origin);
    delete from @schema@.prepared_stages where commit_name = p_commit returning epoch, ranges into v_prepared;
    with taken as (
        update @schema@.load_range as r set load_id = v_load.id, commit_name = null
         where r.commit_name = p_commit and r.load_id is null
        returning r.range, r.stage_number, r.partition_id, r.priority, r.run_at, r.size, r.epoch, r.has_idempotency_keys, r.task
    )
    select coalesce(array_agg(row(range, stage_number, partition_id, priority, run_at, size, epoch, has_idempotency_keys, task, null)::@schema@.range_to_publish),
                    '{}')
      into v_ranges from taken;
    if v_prepared.ranges is distinct from cardinality(v_ranges) then
        raise exception using errcode = 'PS002', message = 'part of what was prepared is gone';
    end if;
    v_queue.epoch := v_prepared.epoch;
    select o.rows, o.duplicates into rows, duplicates
      from @schema@.publish_ranges(v_queue, v_load, p_batch, v_ranges, false, 0, null) as o;
end $$;

-- Keeps a commit from ever being decided; false where it was. Only on the shard that decides. Locks: the commit.
create or replace function @schema@.abort_commit(p_commit text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.lock_commit(p_commit);
    if exists (select from @schema@.load_batch where commit_name = p_commit) then
        return false;
    end if;
    insert into @schema@.load_abort (commit_name) values (p_commit) on conflict do nothing;
    return true;
end $$;

-- Lets prepared stages of a commit go that was not decided. Locks: its ranges.
create or replace function @schema@.release_stages(p_commit text) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    update @schema@.load_range set commit_name = null, stage_number = null where commit_name = p_commit and load_id is null;
    delete from @schema@.prepared_stages where commit_name = p_commit;
$$;
