-- breaking: no
-- Loads: bulk writes with a name. Their jobs are written ahead, range by range, where nobody can claim them (staged);
-- publishing makes all of them visible in one transaction, together with the row that says that it was done.

--
-- Over several shards a load is decided on one of them, its home, which is the shard that leads. The stages of the others
-- are held first (hold_stages); the transaction that decides publishes what lies at home and says what follows
-- elsewhere (load_part); then each shard publishes its part, once, whoever asks for it (publish_part). Held stages are kept,
-- and the map they go by stays open, until their home says that they were not decided, and cannot be any more
-- (abort_attempt).

-- At home: what follows on other shards, until it is published there, and what it came to.
create table penstock.load_part (
    load_id      bigint not null,
    batch        bigint not null,
    shard        smallint not null,
    attempt      text not null,
    rows         bigint not null,
    duplicates   bigint,
    published_at timestamptz,
    primary key (load_id, batch, shard),
    foreign key (load_id, batch) references penstock.load_batch on delete cascade
);

create index load_part_to_publish on penstock.load_part (load_id, batch, shard) where published_at is null;

-- At home: commits that can decide nothing any more.
create table penstock.load_abort (
    attempt text primary key,
    at      timestamptz not null default now()
);

-- Elsewhere: the stages that a commit holds, and the map their jobs go by.
create table penstock.load_hold (
    attempt    text primary key,
    home       smallint not null,
    queue_id   int not null references penstock.queue,
    epoch      int not null,
    ranges     int not null,
    rows       bigint not null,
    created_at timestamptz not null default now()
);

create index load_hold_of_map on penstock.load_hold (queue_id, epoch);

-- The name of the load that a job came with.
create function penstock.load_of(p_job bigint) returns text
language sql stable parallel safe
begin atomic
    select l.name from penstock.load_range as r join penstock.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;

-- Takes one of so many places among those who write stages under a name, until the transaction ends; false where all
-- are taken. Only tries: whoever waited would keep a connection for it.
create function penstock.enter_stage(p_name text, p_places int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
language sql
begin atomic
    insert into penstock.load_range (range, stage, size, partition_id, priority, run_at, epoch, has_once, task)
    select range, p_stage, size, partition_id, priority, run_at, epoch, has_once, task
      from json_to_recordset(p_ranges)
        as g(range bigint, size smallint, partition_id int, priority smallint, run_at timestamptz, epoch int,
             has_once boolean, task text);
end;

-- Part of a range on its way into the order: the stage's place in the load, and the jobs that are meant (null: all).
create type penstock.part_of_load as (
    range bigint, place bigint, partition_id int, priority smallint, run_at timestamptz, size smallint, epoch int,
    has_once boolean, task text, members bit(1024));

-- Enters the idempotency keys of jobs that are being published, in the order of the keys, so that two who publish the
-- same ones do not wait for each other in turn; what is left without the jobs whose key another job has. A key that is
-- forgotten between the conflict and the look is entered again.
create function penstock.leave_out_known(p_queue penstock.queue, p_parts penstock.part_of_load[]) returns penstock.part_of_load[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ranges bigint[];
    v_maps   bit(1024)[];
    -- Jobs that came first of their key in the load and that another job is before; and those of them that is not.
    v_lost   bigint[];
    v_keys   text[];
    v_late   bigint[] := '{}';
begin
    with once as materialized (
        select j.id, p.place, p.range,
               case when p_queue.is_owned then penstock.once_per_key(j.key, j.attributes ->> 'idempotency_key')
                    else j.attributes ->> 'idempotency_key' end as once
          from unnest(p_parts) as p
         cross join lateral (
               select id, key, attributes from penstock.job_stored
                where id >= p.range * 1024 and id < p.range * 1024 + p.size offset 0) as j
         where p.has_once and j.attributes ? 'idempotency_key'
    ), first as materialized (
        select distinct on (once) once, id from once order by once, place, id
    ), won as (
        insert into penstock.dedup (queue_id, idempotency_key, job_id)
        select p_queue.id, once, id from first order by once
        on conflict do nothing returning job_id
    ), left_out as (
        select o.range, bit_or(penstock.single((o.id % 1024)::int)) as map
          from once as o left join won as w on w.job_id = o.id where w.job_id is null group by o.range
    ), lost as (
        select f.id, f.once from first as f left join won as w on w.job_id = f.id where w.job_id is null
    )
    select (select array_agg(range order by range) from left_out), (select array_agg(map order by range) from left_out),
           (select array_agg(id order by once) from lost), (select array_agg(once order by once) from lost)
      into v_ranges, v_maps, v_lost, v_keys;

    loop
        select array_agg(l.id order by l.once), array_agg(l.once order by l.once) into v_lost, v_keys
          from unnest(v_lost, v_keys) as l(id, once)
         where not exists (select from penstock.dedup as d where d.queue_id = p_queue.id and d.idempotency_key = l.once);
        exit when v_lost is null;
        with won as (
            insert into penstock.dedup (queue_id, idempotency_key, job_id)
            select p_queue.id, l.once, l.id from unnest(v_lost, v_keys) as l(id, once) order by l.once
            on conflict do nothing returning job_id
        )
        select v_late || array(select job_id from won) into v_late;
    end loop;

    return (
        with late as (
            select l / 1024 as range, bit_or(penstock.single((l % 1024)::int)) as map from unnest(v_late) as l group by 1
        ), left_out as (
            select g.range, g.map & ~coalesce(l.map, repeat('0', 1024)::bit(1024)) as map
              from unnest(v_ranges, v_maps) as g(range, map) left join late as l on l.range = g.range
        ), left_over as (
            select p.*, l.map from unnest(p_parts) as p left join left_out as l on l.range = p.range
        )
        select coalesce(array_agg(row(range, place, partition_id, priority, run_at, size, epoch, has_once, task,
                                      penstock.span(0, size) & ~map)::penstock.part_of_load), '{}')
          from left_over where map is null or (penstock.span(0, size) & ~map) <> repeat('0', 1024)::bit(1024));
end $$;

-- Each range that was routed by an earlier map than p_queue's becomes one for each partition its jobs go to by that one.
-- What has no key stays on its shard. A job that goes to another shard is an error (PS003).
create function penstock.route_anew(p_queue penstock.queue, p_parts penstock.part_of_load[]) returns penstock.part_of_load[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_routed penstock.part_of_load[];
    v_ids    int[];
begin
    select m.partition_ids into v_ids from penstock.queue_map as m where m.queue_id = p_queue.id and m.epoch = p_queue.epoch;
    with routed as (
        select o.range, o.place, t.id as partition_id, o.priority, o.run_at, o.size, p_queue.epoch, o.has_once, o.task,
               bit_or(penstock.single(m.position)) as members
          from unnest(p_parts) as o
         cross join lateral unnest(penstock.positions(0::smallint, o.size, o.members)) as m(position)
         cross join lateral (select key from penstock.job_stored where id = o.range * 1024 + m.position limit 1) as j
         cross join lateral (select penstock.place_by(v_ids, j.key, o.partition_id) as id offset 0) as t
         where o.epoch <> p_queue.epoch
         group by o.range, o.place, t.id, o.priority, o.run_at, o.size, o.has_once, o.task
    )
    select array(select row(r.*)::penstock.part_of_load from routed as r)
        || array(select row(p.*)::penstock.part_of_load from unnest(p_parts) as p where p.epoch is null or p.epoch = p_queue.epoch)
      into v_routed;
    if exists (select from unnest(v_routed) as r join penstock.partition as p on p.id = r.partition_id
                where p.shard <> penstock.here()) then
        perform penstock.refuse_moved(p_queue);
    end if;
    return v_routed;
end $$;

create function penstock.refuse_moved(p_queue penstock.queue) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'PS003', message = format(
        'keys of queue %s belong to other shards by now than when its rows were staged', quote_literal(p_queue.name));
end $$;

-- The queue of a load, whose map nobody closes before this transaction ends.
create function penstock.queue_of_load(p_queue text) returns penstock.queue
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue penstock.queue;
begin
    select * into v_queue from penstock.queue where name = p_queue;
    if v_queue.is_owned or exists (select from penstock.shard where number <> penstock.here()) then
        perform penstock.hold_map(v_queue.id);
        select * into v_queue from penstock.queue where id = v_queue.id;
    end if;
    return v_queue;
end $$;

-- A name belongs to one load, or to the stream of one checkpoint.
create function penstock.check_load(p_load penstock.load, p_queue penstock.queue, p_is_stream boolean, p_origin text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_load.queue_id <> p_queue.id or p_load.is_stream <> p_is_stream then
        raise exception using errcode = '22023', message = format(
            'InvalidJob: load: %s names another load, %s queue %s: choose another name', quote_literal(p_load.name),
            case when p_load.is_stream then 'a stream into' else 'into' end,
            (select quote_literal(q.name) from penstock.queue as q where q.id = p_load.queue_id));
    end if;
    if p_is_stream and p_load.origin <> p_origin then
        raise exception using errcode = '22023', message = format(
            'InvalidJob: load: %s belongs to a stream with another checkpoint, whose batches count from 0 too: '
            'go on from that checkpoint, or choose another name', quote_literal(p_load.name));
    end if;
end $$;

-- Refuses parts that would make a partition longer than its queue allows.
create function penstock.check_length(p_queue penstock.queue, p_parts penstock.part_of_load[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_queue.max_length is not null and exists (
        select from (select partition_id, sum(penstock.members_count(0::smallint, size, members)) as n
                       from unnest(p_parts) as p where run_at is null or run_at <= now() group by partition_id) as g
         where penstock.waiting_in(g.partition_id) + g.n > p_queue.max_length) then
        raise exception using errcode = '53400', message = format(
            'QueueFull: queue ''%s'' is full: max_length %s', p_queue.name, p_queue.max_length);
    end if;
end $$;

-- Makes parts visible by p_queue's map, without the jobs whose idempotency key is known or came earlier in the load; writes
-- the row that says so. What was routed by an earlier map is routed anew, job by job.
create function penstock.open_load(
    p_queue penstock.queue, p_load penstock.load, p_batch bigint, p_taken penstock.part_of_load[], p_is_bounded boolean,
    p_bad_rows bigint, p_attempt text, out rows bigint, out duplicates bigint, out published_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_parts penstock.part_of_load[] := p_taken;
begin
    if exists (select from unnest(v_parts) as p where p.has_once) then
        v_parts := penstock.leave_out_known(p_queue, v_parts);
    end if;
    if exists (select from unnest(v_parts) as p where p.epoch <> p_queue.epoch) then
        v_parts := penstock.route_anew(p_queue, v_parts);
    end if;
    if p_is_bounded then
        perform penstock.check_length(p_queue, v_parts);
    end if;
    select coalesce(sum(size), 0) into open_load.rows from unnest(p_taken) as p;
    duplicates := rows - (select coalesce(sum(penstock.members_count(0::smallint, size, members)), 0) from unnest(v_parts) as p);

    with given as (
        select p.*, p.run_at is not null and p.run_at > now() as is_later,
               case when p_queue.is_owned then p_queue.epoch end as map_epoch
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
    insert into penstock.load_batch as b (load_id, batch, rows, duplicates, bad_rows, attempt)
    values (p_load.id, p_batch, open_load.rows, open_load.duplicates, p_bad_rows, p_attempt)
    returning b.published_at into open_load.published_at;
    -- A stream was cancelled up to where it was then.
    update penstock.load set cancelled_at = null where id = p_load.id and cancelled_at is not null;
    if p_load.is_paused then
        perform penstock.hold_load(p_load.id);
    end if;
    perform penstock.wake(p_queue.id);
end $$;

-- Whoever wants to decide a commit, or to keep it from ever being decided, comes one after the other.
create function penstock.lock_attempt(p_attempt text) returns void
language sql
return pg_advisory_xact_lock(hashtext('penstock.load'), hashtext(p_attempt));

-- Decides about a load, all or nothing, once: a batch that was decided before stays as it is. Publishes the stages that lie
-- here, in the order given, within a stage in the order of its ranges; p_shards (with so many rows each) hold the others.
-- is_new: this commit did it, now or before its answer was lost. A stage that is not there any more, or not whole, is an
-- error (PS002), and so are rows that belong to other shards by now (PS003), another shard that leads (PS004),
-- and a commit that was given up (PS005).
-- Locks: the load's row, its queue's map (shared), the attempt, its ranges, the idempotency keys in order.
create function penstock.publish_load(
    p_name text, p_queue text, p_batch bigint, p_is_stream boolean, p_origin text, p_stages text[], p_counts int[],
    p_bad_rows bigint, p_homes smallint[], p_attempt text, p_shards smallint[], p_rows bigint[],
    out is_new boolean, out rows bigint, out duplicates bigint, out bad_rows bigint, out published_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue penstock.queue := penstock.queue_of_load(p_queue);
    v_load  penstock.load;
    v_parts penstock.part_of_load[];
begin
    insert into penstock.load (name, queue_id, is_stream, origin) values (p_name, v_queue.id, p_is_stream, p_origin)
        on conflict do nothing;
    select * into v_load from penstock.load where name = p_name for no key update;
    perform penstock.check_load(v_load, v_queue, p_is_stream, p_origin);
    -- Whoever hands all of this over to another shard waits for it, and then it is not decided here any more.
    perform pg_advisory_xact_lock_shared(hashtext('penstock.loads'));
    perform penstock.lock_attempt(p_attempt);
    select b.attempt = p_attempt, b.rows, b.duplicates, b.bad_rows, b.published_at
      into is_new, rows, duplicates, bad_rows, published_at
      from penstock.load_batch as b where b.load_id = v_load.id and b.batch = p_batch;
    if found then
        return;
    end if;
    if not penstock.is_lead() then
        raise exception using errcode = 'PS004', message = 'another shard leads, and decides about loads';
    elsif exists (select from penstock.load_abort where attempt = p_attempt) then
        raise exception using errcode = 'PS005', message = 'this commit was given up';
    end if;

    with taken as (
        update penstock.load_range as r set load_id = v_load.id
          from unnest(p_stages) with ordinality as s(stage, place)
         where r.stage = s.stage and r.load_id is null and r.attempt is null
        returning r.*, s.place as given_place
    )
    select coalesce(array_agg(row(range, given_place, partition_id, priority, run_at, size, epoch, has_once, task, null)::penstock.part_of_load),
                    '{}')
      into v_parts from taken;
    -- Looked at after they were taken: whoever forgets stages at this moment has come before.
    perform penstock.check_parts(v_queue, v_parts, (select sum(n) from unnest(p_counts) as n), p_homes);
    select o.rows, o.duplicates, o.published_at into rows, duplicates, published_at
      from penstock.open_load(v_queue, v_load, p_batch, v_parts, true, p_bad_rows, p_attempt) as o;
    insert into penstock.load_part (load_id, batch, shard, attempt, rows)
    select v_load.id, p_batch, s.shard, p_attempt, s.rows from unnest(p_shards, p_rows) as s(shard, rows);
    bad_rows := p_bad_rows;
    is_new := true;
end $$;

-- Refuses parts that are not all there, whose idempotency keys are looked for elsewhere, or that nobody would serve.
create function penstock.check_parts(p_queue penstock.queue, p_parts penstock.part_of_load[], p_count bigint, p_homes smallint[])
returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(p_parts) <> coalesce(p_count, 0) then
        raise exception using errcode = 'PS002', message = 'part of what was staged is gone';
    end if;
    if exists (select from unnest(p_parts) as p where p.has_once)
       and exists (select from penstock.queue_map where queue_id = p_queue.id and not is_carried) then
        raise exception using errcode = '55P03', message = format(
            'the idempotency keys of queue %s are being carried to other shards', quote_literal(p_queue.name));
    end if;
    if p_queue.homes <> p_homes and exists (select from unnest(p_parts) as p where p.has_once)
       or exists (select from penstock.shard where number = penstock.here() and state <> 'active')
          and exists (select from unnest(p_parts) as t join penstock.partition as p on p.id = t.partition_id where not p.is_current) then
        perform penstock.refuse_moved(p_queue);
    end if;
end $$;

-- Holds stages that a commit on shard p_home is to decide about, if they can be published: whatever could be refused is
-- refused here. How many rows they have. Once for each attempt. Locks: the queue's map (shared), the ranges.
create function penstock.hold_stages(
    p_attempt text, p_home smallint, p_name text, p_queue text, p_is_stream boolean, p_origin text, p_stages text[],
    p_counts int[], p_homes smallint[]) returns bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue penstock.queue := penstock.queue_of_load(p_queue);
    v_load  penstock.load;
    v_parts penstock.part_of_load[];
    v_rows  bigint;
begin
    select rows into v_rows from penstock.load_hold where attempt = p_attempt;
    if found then
        return v_rows;
    end if;
    select * into v_load from penstock.load where name = p_name;
    if found then
        perform penstock.check_load(v_load, v_queue, p_is_stream, p_origin);
    end if;
    with held as (
        update penstock.load_range as r set attempt = p_attempt, place = s.place
          from unnest(p_stages) with ordinality as s(stage, place)
         where r.stage = s.stage and r.load_id is null and r.attempt is null
        returning r.*
    )
    select coalesce(array_agg(row(range, place, partition_id, priority, run_at, size, epoch, has_once, task, null)::penstock.part_of_load),
                    '{}'),
           coalesce(sum(size), 0)
      into v_parts, v_rows from held;
    perform penstock.check_parts(v_queue, v_parts, (select sum(n) from unnest(p_counts) as n), p_homes);
    perform penstock.check_length(v_queue, penstock.route_anew(v_queue, v_parts));
    insert into penstock.load_hold (attempt, home, queue_id, epoch, ranges, rows)
    values (p_attempt, p_home, v_queue.id, v_queue.epoch, cardinality(v_parts), v_rows);
    return v_rows;
end $$;

-- Publishes the stages that a commit holds here, once it was decided at its home: by the map they were held with, which
-- nobody has closed since. Once for each batch. Locks: the load's row, the ranges, the idempotency keys in order.
create function penstock.publish_part(
    p_attempt text, p_name text, p_queue text, p_is_stream boolean, p_origin text, p_batch bigint, p_is_paused boolean,
    out rows bigint, out duplicates bigint)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queue penstock.queue;
    v_load  penstock.load;
    v_hold  penstock.load_hold;
    v_parts penstock.part_of_load[];
begin
    select * into v_queue from penstock.queue where name = p_queue;
    insert into penstock.load (name, queue_id, is_stream, origin, is_paused)
    values (p_name, v_queue.id, p_is_stream, p_origin, p_is_paused) on conflict do nothing;
    select * into v_load from penstock.load where name = p_name for no key update;
    select b.rows, b.duplicates into rows, duplicates
      from penstock.load_batch as b where b.load_id = v_load.id and b.batch = p_batch;
    if found then
        return;
    end if;
    perform penstock.check_load(v_load, v_queue, p_is_stream, p_origin);
    delete from penstock.load_hold where attempt = p_attempt returning * into v_hold;
    with taken as (
        update penstock.load_range as r set load_id = v_load.id, attempt = null
         where r.attempt = p_attempt and r.load_id is null
        returning r.*
    )
    select coalesce(array_agg(row(range, place, partition_id, priority, run_at, size, epoch, has_once, task, null)::penstock.part_of_load),
                    '{}')
      into v_parts from taken;
    if v_hold.ranges is distinct from cardinality(v_parts) then
        raise exception using errcode = 'PS002', message = 'part of what was held is gone';
    end if;
    v_queue.epoch := v_hold.epoch;
    select o.rows, o.duplicates into rows, duplicates
      from penstock.open_load(v_queue, v_load, p_batch, v_parts, false, 0, null) as o;
end $$;

-- Keeps a commit from ever being decided; false where it was. Only at its home. Locks: the attempt.
create function penstock.abort_attempt(p_attempt text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.lock_attempt(p_attempt);
    if exists (select from penstock.load_batch where attempt = p_attempt) then
        return false;
    end if;
    insert into penstock.load_abort (attempt) values (p_attempt) on conflict do nothing;
    return true;
end $$;

-- Lets go of what a commit held that was not decided. Locks: its ranges.
create function penstock.release_stages(p_attempt text) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    update penstock.load_range set attempt = null, place = null where attempt = p_attempt and load_id is null;
    delete from penstock.load_hold where attempt = p_attempt;
$$;

-- Takes the ready jobs of a load out of the order. Locks: their partitions' rows where owners read them, their ready rows.
create function penstock.hold_load(p_load bigint) returns bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
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
language sql
begin atomic
    -- Whoever resumes one of them waits until this is done, and brings back what it held.
    with paused as materialized (
        select id from penstock.load where is_paused order by id for share
    )
    select coalesce(sum(penstock.hold_load(id)), 0)::bigint from paused;
end;

-- Lets the jobs of a load come back, behind what is ready by now, in the order they had.
create function penstock.resume_load(p_load bigint) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    update penstock.load set is_paused = false where id = p_load;
    update penstock.scheduled as s
       set due_at = s.due_at - (penstock.paused_at(0) - timestamptz '1700-01-01 00:00:00+00')
      from penstock.load_range as l
     where l.load_id = p_load and s.range = l.range and s.due_at >= penstock.paused_from();
$$;

-- Forgets stages that nobody published within a day, and what is not needed any more of a stream's batches. What a commit
-- on another shard holds stays, whatever its age.
create function penstock.forget_stages() returns bigint
language sql
begin atomic
    with old as (
        select b.load_id, b.batch from penstock.load_batch as b join penstock.load as l on l.id = b.load_id and l.is_stream
         where b.published_at < now() - interval '30 days'
           and b.batch < (select max(n.batch) - 1000 from penstock.load_batch as n where n.load_id = b.load_id)
           and not exists (select from penstock.load_part as p
                            where p.load_id = b.load_id and p.batch = b.batch and p.published_at is null)
         limit 10000
    ), batches as (
        delete from penstock.load_batch as b using old as o where b.load_id = o.load_id and b.batch = o.batch
    ), aborts as (
        delete from penstock.load_abort where at < now() - interval '1 year'
    ), stages as (
        delete from penstock.load_range where load_id is null and attempt is null and range in (
            select range from penstock.load_range
             where load_id is null and attempt is null and created_at < now() - interval '1 day' limit 10000)
        returning 1
    )
    select count(*) from stages;
end;
