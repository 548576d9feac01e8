-- What was staged becomes work, all of it at once.

-- Enters the idempotency keys of jobs that are being published, in the order of the keys, so that two who publish the
-- same ones do not wait for each other in turn; what is left without the jobs whose key another job has. A key that is
-- forgotten between the conflict and the look is entered again.
create or replace function @schema@.leave_out_known(p_queue @schema@.queue, p_ranges @schema@.range_to_publish[]) returns @schema@.range_to_publish[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ranges  bigint[];
    v_bitmaps bit(1024)[];
    -- Jobs that came first of their key in the load and that another job is before; and those of them that is not.
    v_beaten    bigint[];
    v_keys    text[];
    v_late    bigint[] := '{}';
begin
    with keyed as materialized (
        select j.id, p.stage_number, p.range,
               case when p_queue.is_owned then @schema@.scoped_idempotency_key(j.key, j.attributes ->> 'idempotency_key')
                    else j.attributes ->> 'idempotency_key' end as idempotency_key
          from unnest(p_ranges) as p
         cross join lateral (
               select id, key, attributes from @schema@.job_stored
                where id >= p.range * 1024 and id < p.range * 1024 + p.size offset 0) as j
         where p.has_idempotency_keys and j.attributes ? 'idempotency_key'
    ), first as materialized (
        select distinct on (idempotency_key) idempotency_key, id from keyed order by idempotency_key, stage_number, id
    ), won as (
        insert into @schema@.dedup (queue_id, idempotency_key, job_id)
        select p_queue.id, idempotency_key, id from first order by idempotency_key
        on conflict do nothing returning job_id
    ), left_out as (
        select o.range, bit_or(@schema@.single((o.id % 1024)::int)) as bitmap
          from keyed as o left join won as w on w.job_id = o.id where w.job_id is null group by o.range
    ), beaten as (
        select f.id, f.idempotency_key from first as f left join won as w on w.job_id = f.id where w.job_id is null
    )
    select (select array_agg(range order by range) from left_out), (select array_agg(bitmap order by range) from left_out),
           (select array_agg(id order by idempotency_key) from beaten),
           (select array_agg(idempotency_key order by idempotency_key) from beaten)
      into v_ranges, v_bitmaps, v_beaten, v_keys;

    loop
        select array_agg(l.id order by l.idempotency_key), array_agg(l.idempotency_key order by l.idempotency_key)
          into v_beaten, v_keys
          from unnest(v_beaten, v_keys) as l(id, idempotency_key)
         where not exists (select from @schema@.dedup as d where d.queue_id = p_queue.id and d.idempotency_key = l.idempotency_key);
        exit when v_beaten is null;
        with won as (
            insert into @schema@.dedup (queue_id, idempotency_key, job_id)
            select p_queue.id, l.idempotency_key, l.id from unnest(v_beaten, v_keys) as l(id, idempotency_key) order by l.idempotency_key
            on conflict do nothing returning job_id
        )
        select v_late || array(select job_id from won) into v_late;
    end loop;

    return (
        with late as (
            select l / 1024 as range, bit_or(@schema@.single((l % 1024)::int)) as bitmap from unnest(v_late) as l group by 1
        ), left_out as (
            select g.range, g.bitmap & ~coalesce(l.bitmap, repeat('0', 1024)::bit(1024)) as bitmap
              from unnest(v_ranges, v_bitmaps) as g(range, bitmap) left join late as l on l.range = g.range
        ), rest as (
            select p.*, l.bitmap from unnest(p_ranges) as p left join left_out as l on l.range = p.range
        )
        select coalesce(array_agg(row(range, stage_number, partition_id, priority, run_at, size, epoch, has_idempotency_keys, task,
                                      @schema@.span(0, size) & ~bitmap)::@schema@.range_to_publish), '{}')
          from rest where bitmap is null or (@schema@.span(0, size) & ~bitmap) <> repeat('0', 1024)::bit(1024));
end $$;

-- Each range that was routed by an earlier map than p_queue's becomes one for each partition its jobs go to by that one.
-- What has no key stays on its shard. A job that goes to another shard is an error (PS003).
create or replace function @schema@.route_anew(p_queue @schema@.queue, p_ranges @schema@.range_to_publish[]) returns @schema@.range_to_publish[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_routed @schema@.range_to_publish[];
    v_ids    int[];
begin
    select m.partition_ids into v_ids from @schema@.queue_map as m where m.queue_id = p_queue.id and m.epoch = p_queue.epoch;
    with routed as (
        select o.range, o.stage_number, t.id as partition_id, o.priority, o.run_at, o.size, p_queue.epoch, o.has_idempotency_keys, o.task,
               bit_or(@schema@.single(m.position)) as members
          from unnest(p_ranges) as o
         cross join lateral unnest(@schema@.positions(0::smallint, o.size, o.members)) as m(position)
         cross join lateral (select key from @schema@.job_stored where id = o.range * 1024 + m.position limit 1) as j
         cross join lateral (select @schema@.partition_for_key(v_ids, j.key, o.partition_id) as id offset 0) as t
         where o.epoch <> p_queue.epoch
         group by o.range, o.stage_number, t.id, o.priority, o.run_at, o.size, o.has_idempotency_keys, o.task
    )
    select array(select row(r.*)::@schema@.range_to_publish from routed as r)
        || array(select row(k.*)::@schema@.range_to_publish from unnest(p_ranges) as k where k.epoch is null or k.epoch = p_queue.epoch)
      into v_routed;
    if exists (select from unnest(v_routed) as r join @schema@.partition as p on p.id = r.partition_id
                where p.shard <> @schema@.here()) then
        perform @schema@.refuse_moved(p_queue);
    end if;
    return v_routed;
end $$;

-- Makes ranges visible by p_queue's map, without the jobs whose idempotency key is known or came earlier in the load; writes
-- the row that says so. What was routed by an earlier map is routed anew, job by job.
create or replace function @schema@.publish_ranges(
    p_queue @schema@.queue, p_load @schema@.load, p_batch bigint, p_taken @schema@.range_to_publish[], p_is_bounded boolean,
    p_bad_rows bigint, p_commit text, out rows bigint, out duplicates bigint, out published_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_ranges @schema@.range_to_publish[] := p_taken;
begin
    if exists (select from unnest(v_ranges) as p where p.has_idempotency_keys) then
        v_ranges := @schema@.leave_out_known(p_queue, v_ranges);
    end if;
    if exists (select from unnest(v_ranges) as p where p.epoch <> p_queue.epoch) then
        v_ranges := @schema@.route_anew(p_queue, v_ranges);
    end if;
    if p_is_bounded then
        perform @schema@.check_length(p_queue, v_ranges);
    end if;
    select coalesce(sum(size), 0) into publish_ranges.rows from unnest(p_taken) as p;
    duplicates := rows - (select coalesce(sum(@schema@.members_count(0::smallint, size, members)), 0) from unnest(v_ranges) as p);

    with given as (
        select p.*, p.run_at is not null and p.run_at > now() as is_later,
               case when p_queue.is_owned then p_queue.epoch end as map_epoch
          from unnest(v_ranges) as p order by p.stage_number, p.range
    ), at_once as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, task, epoch, changed)
        select partition_id, priority, @schema@.draw_range(), range, 0, size, members, task, map_epoch,
               case when map_epoch is not null then pg_current_xact_id() end
          from given where not is_later
    ), later as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, members, task, epoch)
        select run_at, partition_id, priority, range, 0, size, members, task, map_epoch from given where is_later
    ), counted as (
        select partition_id, is_later, @schema@.members_count(0::smallint, size, members) as n from given
    )
    insert into @schema@.tally (partition_id, enqueued, opened, scheduled)
    select partition_id, sum(n), coalesce(sum(n) filter (where not is_later), 0), coalesce(sum(n) filter (where is_later), 0)
      from counted group by partition_id;
    insert into @schema@.load_batch as b (load_id, batch, rows, duplicates, bad_rows, commit_name)
    values (p_load.id, p_batch, publish_ranges.rows, publish_ranges.duplicates, p_bad_rows, p_commit)
    returning b.published_at into publish_ranges.published_at;
    -- A stream was cancelled up to where it was then.
    update @schema@.load set cancelled_at = null where id = p_load.id and cancelled_at is not null;
    if p_load.is_paused then
        perform @schema@.suspend_load(p_load.id);
    end if;
    perform @schema@.wake(p_queue.id);
end $$;

-- Whoever wants to decide a commit, or to keep it from ever being decided, comes one after the other.
create or replace function @schema@.lock_commit(p_commit text) returns void
language sql
return pg_advisory_xact_lock(hashtext('@schema@.load'), hashtext(p_commit));

-- Decides about a load, all or nothing, once: a batch that was decided before stays as it is. Publishes the stages that lie
-- here, in the order given, within a stage in the order of its ranges; p_shards (with so many rows each) hold the others.
-- is_new: this commit did it, now or before its answer was lost. A stage that is not there any more, or not whole, is an
-- error (PS002), and so are rows that belong to other shards by now (PS003), another shard that leads (PS004),
-- and a commit that was given up (PS005).
-- Locks: the load's row, its queue's map (shared), the commit, its ranges, the idempotency keys in order.
create or replace function @schema@.publish_load(
    p_name text, p_queue text, p_batch bigint, p_is_stream boolean, p_origin text, p_stages text[], p_counts int[],
    p_bad_rows bigint, p_homes smallint[], p_commit text, p_shards smallint[], p_rows bigint[], p_trace jsonb,
    out is_new boolean, out rows bigint, out duplicates bigint, out bad_rows bigint, out published_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue @schema@.queue;
    v_load  @schema@.load;
    v_ranges @schema@.range_to_publish[];
begin
    perform @schema@.lock_map_of_load(p_queue);
    v_queue := (select q from @schema@.queue as q where q.name = p_queue);
    perform @schema@.refuse_deleted(v_queue.id is null);
    insert into @schema@.load (name, queue_id, is_stream, origin, trace)
    values (p_name, v_queue.id, p_is_stream, p_origin, p_trace)
        on conflict do nothing;
    v_load := (select l from @schema@.load as l where l.name = p_name for no key update);
    perform @schema@.check_load(v_load, v_queue, p_is_stream, p_origin);
    -- Whoever hands all of this over to another shard waits for it, and then it is not decided here any more.
    perform pg_advisory_xact_lock_shared(hashtext('@schema@.loads'));
    perform @schema@.lock_commit(p_commit);
    select b.commit_name = p_commit, b.rows, b.duplicates, b.bad_rows, b.published_at
      into is_new, rows, duplicates, bad_rows, published_at
      from @schema@.load_batch as b where b.load_id = v_load.id and b.batch = p_batch;
    if found then
        return;
    end if;
    if not @schema@.is_lead() then
        raise exception using errcode = 'PS004', message = 'another shard leads, and decides about loads';
    elsif exists (select from @schema@.load_abort where commit_name = p_commit) then
        raise exception using errcode = 'PS005', message = 'this commit was given up';
    end if;

    with taken as (
        update @schema@.load_range as r set load_id = v_load.id
          from unnest(p_stages) with ordinality as s(stage, stage_number)
         where r.stage = s.stage and r.load_id is null and r.commit_name is null
        returning r.range, s.stage_number, r.partition_id, r.priority, r.run_at, r.size, r.epoch, r.has_idempotency_keys, r.task
    )
    select coalesce(array_agg(row(range, stage_number, partition_id, priority, run_at, size, epoch, has_idempotency_keys, task, null)::@schema@.range_to_publish),
                    '{}')
      into v_ranges from taken;
    -- Looked at after they were taken: whoever forgets stages at this moment has come before.
    perform @schema@.check_ranges(v_queue, v_ranges, (select sum(n) from unnest(p_counts) as n), p_homes);
    select o.rows, o.duplicates, o.published_at into rows, duplicates, published_at
      from @schema@.publish_ranges(v_queue, v_load, p_batch, v_ranges, true, p_bad_rows, p_commit) as o;
    insert into @schema@.load_share (load_id, batch, shard, commit_name, rows)
    select v_load.id, p_batch, s.shard, p_commit, s.rows from unnest(p_shards, p_rows) as s(shard, rows);
    bad_rows := p_bad_rows;
    is_new := true;
end $$;
