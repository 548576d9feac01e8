-- breaking: no
-- Loads: bulk writes with a name. Their jobs are written ahead, range by range, where nobody can claim them (staged);
-- publishing makes all of them visible in one transaction, together with the row that says that it was done.

-- The name of the load that a job came with.
create function penstock.load_of(p_job bigint) returns text
language sql stable parallel safe as
$$ select l.name from penstock.load_range as r join penstock.load as l on l.id = r.load_id where r.range = p_job / 1024 $$;

-- Takes one of so many places among those who write stages under a name, until the transaction ends; false where all
-- are taken. Only tries: whoever waited would keep a connection for it.
create function penstock.enter_stage(p_name text, p_places int) returns boolean
language plpgsql as $$
begin
    for i in 1..p_places loop
        if pg_try_advisory_xact_lock(hashtext('penstock.stage:' || p_name), i) then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Notes ranges whose jobs the same transaction writes.
create function penstock.stage_ranges(p_stage text, p_ranges json) returns void
language sql as $$
    insert into penstock.load_range (range, stage, size, partition_id, priority, run_at, epoch, has_once, task)
    select range, p_stage, size, partition_id, priority, run_at, epoch, has_once, task
      from json_to_recordset(p_ranges)
        as g(range bigint, size smallint, partition_id int, priority smallint, run_at timestamptz, epoch int,
             has_once boolean, task text)
$$;

-- Part of a range on its way into the order: the stage's place in the load, and the jobs that are meant (null: all).
create type penstock.part_of_load as (
    range bigint, place bigint, partition_id int, priority smallint, run_at timestamptz, size smallint, epoch int,
    has_once boolean, task text, members bit(1024));

-- Enters the idempotency keys of jobs that are being published, in the order of the keys, so that two who publish the
-- same ones do not wait for each other in turn; what is left without the jobs whose key another job has.
create function penstock.leave_out_known(p_queue penstock.queue, p_parts penstock.part_of_load[]) returns penstock.part_of_load[]
language sql as $$
    with once as materialized (
        select j.id, p.place, p.range,
               case when p_queue.is_owned then penstock.once_per_key(j.key, j.attributes ->> 'idempotency_key')
                    else j.attributes ->> 'idempotency_key' end as once
          from unnest(p_parts) as p
         cross join lateral (
               select id, key, attributes from penstock.job_stored
                where id >= p.range * 1024 and id < p.range * 1024 + p.size offset 0) as j
         where p.has_once and j.attributes ? 'idempotency_key'
    ), first as (
        select distinct on (once) once, id from once order by once, place, id
    ), won as (
        insert into penstock.dedup (queue_id, idempotency_key, job_id)
        select p_queue.id, once, id from first order by once
        on conflict do nothing returning job_id
    ), lost as (
        select o.range, bit_or(penstock.single((o.id % 1024)::int)) as map
          from once as o left join won as w on w.job_id = o.id where w.job_id is null group by o.range
    ), left_over as (
        select p.*, l.map from unnest(p_parts) as p left join lost as l on l.range = p.range
    )
    select coalesce(array_agg(row(range, place, partition_id, priority, run_at, size, epoch, has_once, task,
                                  penstock.span(0, size) & ~map)::penstock.part_of_load), '{}')
      from left_over where map is null or (penstock.span(0, size) & ~map) <> repeat('0', 1024)::bit(1024)
$$;

-- Each range that was routed by an earlier map becomes one for each partition its jobs go to by the map of now.
create function penstock.route_anew(p_queue penstock.queue, p_parts penstock.part_of_load[]) returns penstock.part_of_load[]
language sql as $$
    with routed as (
        select o.range, o.place, t.id as partition_id, o.priority, o.run_at, o.size, p_queue.epoch, o.has_once, o.task,
               bit_or(penstock.single(m.position)) as members
          from unnest(p_parts) as o join penstock.partition as h on h.id = o.partition_id
         cross join lateral unnest(penstock.positions(0::smallint, o.size, o.members)) as m(position)
         cross join lateral (select key from penstock.job_stored where id = o.range * 1024 + m.position offset 0) as j
          join penstock.partition as t on t.queue_id = p_queue.id
               and t.number = coalesce(penstock.partition_of(j.key, p_queue.partitions), h.number % p_queue.partitions)
         where o.epoch <> p_queue.epoch
         group by o.range, o.place, t.id, o.priority, o.run_at, o.size, o.has_once, o.task
    )
    select array(select row(r.*)::penstock.part_of_load from routed as r)
        || array(select row(p.*)::penstock.part_of_load from unnest(p_parts) as p where p.epoch is null or p.epoch = p_queue.epoch)
$$;

-- Publishes stages under a name, all or nothing, once: a batch that was published before stays as it is. The stages
-- come in the order their jobs are to have; within a stage the order is that of its ranges. is_new: it was done now.
-- A stage that is not there any more, or not whole, is an error (PS002).
-- Jobs whose idempotency key is known, or came earlier in the load, are left out. What was routed by an earlier map is
-- routed anew, job by job. Locks: the load's row, its queue's map (shared), its ranges, the idempotency keys in order.
create function penstock.publish_load(
    p_name text, p_queue text, p_batch bigint, p_is_stream boolean, p_origin text, p_stages text[], p_counts int[],
    p_bad_rows bigint,
    out is_new boolean, out rows bigint, out duplicates bigint, out bad_rows bigint,
    out published_at timestamptz)
language plpgsql set enable_seqscan = off as $$
declare
    v_queue      penstock.queue;
    v_load       penstock.load;
    v_parts      penstock.part_of_load[];
    v_taken      bigint;
    v_full       record;
begin
    select * into v_queue from penstock.queue where name = p_queue;
    if v_queue.is_owned then
        perform penstock.hold_map(v_queue.id);
        select * into v_queue from penstock.queue where id = v_queue.id;
    end if;
    insert into penstock.load (name, queue_id, is_stream, origin) values (p_name, v_queue.id, p_is_stream, p_origin)
        on conflict do nothing;
    select * into v_load from penstock.load where name = p_name for no key update;
    if v_load.queue_id <> v_queue.id or v_load.is_stream <> p_is_stream then
        raise exception using errcode = '22023', message = format(
            'InvalidJob: load: %s names another load, %s queue %s: choose another name', quote_literal(p_name),
            case when v_load.is_stream then 'a stream into' else 'into' end,
            (select quote_literal(q.name) from penstock.queue as q where q.id = v_load.queue_id));
    end if;
    if v_load.origin <> p_origin then
        raise exception using errcode = '22023', message = format(
            'InvalidJob: load: %s belongs to a stream with another checkpoint, whose batches count from 0 too: '
            'go on from that checkpoint, or choose another name', quote_literal(p_name));
    end if;
    select false, b.rows, b.duplicates, b.bad_rows, b.published_at
      into is_new, rows, duplicates, bad_rows, published_at
      from penstock.load_batch as b where b.load_id = v_load.id and b.batch = p_batch;
    if found then
        return;
    end if;

    with taken as (
        update penstock.load_range as r set load_id = v_load.id
          from unnest(p_stages) with ordinality as s(stage, place)
         where r.stage = s.stage and r.load_id is null
        returning r.*, s.place
    )
    select coalesce(array_agg(row(range, place, partition_id, priority, run_at, size, epoch, has_once, task, null)::penstock.part_of_load),
                    '{}'),
           coalesce(sum(size), 0), count(*)
      into v_parts, publish_load.rows, v_taken from taken;
    -- Looked at after they were taken: whoever forgets stages at this moment has come before.
    if v_taken <> (select coalesce(sum(n), 0) from unnest(p_counts) as n) then
        raise exception using errcode = 'PS002', message = 'part of what was staged is gone';
    end if;
    if exists (select from unnest(v_parts) as p where p.has_once) then
        v_parts := penstock.leave_out_known(v_queue, v_parts);
    end if;
    if exists (select from unnest(v_parts) as p where p.epoch <> v_queue.epoch) then
        v_parts := penstock.route_anew(v_queue, v_parts);
    end if;

    duplicates := rows - (select coalesce(sum(penstock.members_count(0::smallint, size, members)), 0) from unnest(v_parts) as p);
    select q.name, p.name as part, v_queue.max_length as most into v_full
      from (select partition_id, sum(penstock.members_count(0::smallint, size, members)) as n
              from unnest(v_parts) as p where run_at is null or run_at <= now() group by partition_id) as g
      join penstock.partition as p on p.id = g.partition_id join penstock.queue as q on q.id = p.queue_id
     where v_queue.max_length is not null and penstock.waiting_in(g.partition_id) + g.n > v_queue.max_length limit 1;
    if found then
        raise exception using errcode = '53400', message = format(
            'QueueFull: queue ''%s'' is full: max_length %s', v_full.name, v_full.most);
    end if;

    with given as (
        select p.*, p.run_at is not null and p.run_at > now() as is_later,
               case when v_queue.is_owned then v_queue.epoch end as map_epoch
          from unnest(v_parts) as p order by p.place, p.range
    ), at_once as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, task, epoch, changed)
        select partition_id, priority, penstock.draw_range(), range, 0, size, members, task, map_epoch,
               case when map_epoch is not null then pg_current_xact_id() end
          from given where not is_later
    ), later as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, members, task, epoch)
        select run_at, partition_id, priority, range, 0, size, members, task, map_epoch from given where is_later
    ), counted as (
        select partition_id, is_later, penstock.members_count(0::smallint, size, members) as n from given
    )
    insert into penstock.tally (partition_id, enqueued, opened, scheduled)
    select partition_id, sum(n), coalesce(sum(n) filter (where not is_later), 0), coalesce(sum(n) filter (where is_later), 0)
      from counted group by partition_id;
    bad_rows := p_bad_rows;
    insert into penstock.load_batch as b (load_id, batch, rows, duplicates, bad_rows)
    values (v_load.id, p_batch, publish_load.rows, publish_load.duplicates, p_bad_rows)
    returning b.published_at into publish_load.published_at;
    -- A stream was cancelled up to where it was then.
    update penstock.load set cancelled_at = null where id = v_load.id and cancelled_at is not null;
    if v_load.is_paused then
        perform penstock.hold_load(v_load.id);
    end if;
    perform penstock.wake(v_queue.id);
    is_new := true;
end $$;

-- Takes the ready jobs of a load out of the order. Locks: their partitions' rows where owners read them, their ready rows.
create function penstock.hold_load(p_load bigint) returns bigint
language plpgsql set enable_seqscan = off as $$
declare
    v_count bigint;
begin
    perform penstock.read_anew(array(
        select distinct r.partition_id from penstock.load_range as l join penstock.ready as r on r.range = l.range
         where l.load_id = p_load and r.epoch is not null));
    with gone as (
        delete from penstock.ready as r using penstock.load_range as l
         where l.load_id = p_load and r.range = l.range
        returning r.*
    ), held as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, members, attempt, rescues, epoch, task)
        select penstock.paused_at(pos), partition_id, priority, range, low, high, members, attempt, rescues, epoch, task from gone
    ), counted as (
        insert into penstock.tally (partition_id, opened, scheduled)
        select partition_id, -sum(penstock.members_count(low, high, members)), sum(penstock.members_count(low, high, members))
          from gone group by partition_id
    )
    select coalesce(sum(penstock.members_count(low, high, members)), 0) into v_count from gone;
    return v_count;
end $$;

-- The same for every load that is paused: what came back to the order since (a retry, what a dead worker held).
create function penstock.hold_loads() returns bigint
language sql as $$
    -- Whoever resumes one of them waits until this is done, and brings back what it held.
    with paused as materialized (
        select id from penstock.load where is_paused order by id for share
    )
    select coalesce(sum(penstock.hold_load(id)), 0)::bigint from paused
$$;

-- Lets the jobs of a load come back, behind what is ready by now, in the order they had.
create function penstock.resume_load(p_load bigint) returns void
language sql set enable_seqscan = off as $$
    update penstock.load set is_paused = false where id = p_load;
    update penstock.scheduled as s
       set due_at = s.due_at - (timestamptz '10000-01-01 00:00:00+00' - timestamptz '1700-01-01 00:00:00+00')
      from penstock.load_range as l
     where l.load_id = p_load and s.range = l.range and s.due_at >= timestamptz '10000-01-01 00:00:00+00';
$$;

-- Forgets stages that nobody published within a day, and what is not needed any more of a stream's batches.
create function penstock.forget_stages() returns bigint
language sql as $$
    with old as (
        select b.load_id, b.batch from penstock.load_batch as b join penstock.load as l on l.id = b.load_id and l.is_stream
         where b.published_at < now() - interval '30 days'
           and b.batch < (select max(n.batch) - 1000 from penstock.load_batch as n where n.load_id = b.load_id)
         limit 10000
    ), batches as (
        delete from penstock.load_batch as b using old as o where b.load_id = o.load_id and b.batch = o.batch
    ), stages as (
        delete from penstock.load_range where range in (
            select range from penstock.load_range where load_id is null and created_at < now() - interval '1 day' limit 10000)
        returning 1
    )
    select count(*) from stages
$$;
