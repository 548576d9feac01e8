-- breaking: no
-- Shards: the catalogue is the same on every database of the system. A change commits on one of them, with a higher
-- version; what changed since the version that another one has is then carried there.

-- Creates a queue with its partitions and its first map, unless it exists; whether it did not. p_avoid: shards that are
-- down. Locks: the catalogue,
-- where it does not.
create function penstock.declare_queue(
    p_name text, p_partitions int, p_max_length bigint, p_max_wait double precision, p_limit int, p_rate double precision,
    p_per_key int, p_key_rate double precision, p_fair_by text, p_weights json, p_holds_on_retry boolean,
    p_halts_on_dead boolean, p_avoid int[] default '{}') returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint;
    v_queue   int;
    v_ids     int[];
begin
    if exists (select from penstock.queue where name = p_name) then
        return false;
    end if;
    v_version := penstock.next_version();
    insert into penstock.queue (name, max_length, max_wait_seconds, partitions, running_limit, rate, per_key, key_rate,
                                fair_by, weights, holds_on_retry, halts_on_dead)
    values (p_name, p_max_length, p_max_wait, p_partitions, p_limit, p_rate, p_per_key, p_key_rate, p_fair_by, p_weights,
            p_holds_on_retry, p_halts_on_dead)
    on conflict (name) do nothing returning id into v_queue;
    if v_queue is null then
        return false;
    end if;
    v_ids := penstock.partitions_for(v_queue, p_partitions, p_avoid);
    perform penstock.set_map(
        v_queue, v_version, v_ids,
        array(select distinct p.shard from penstock.partition as p where p.id = any (v_ids) order by 1), false, true);
    return true;
end $$;

-- A bucket emptied by a slow rate would be full only after that rate's time: it is empty by the new rate instead. Nobody
-- claims by the old rate meanwhile. Locks: the partitions' rows by number.
create function penstock.fit_buckets(p_queue int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from penstock.partition where queue_id = p_queue order by id for no key update;
    insert into penstock.spent (partition_id, full_at)
    select p.id, empty.full_at
      from penstock.partition as p join penstock.queue as q on q.id = p.queue_id
     cross join lateral (select s.full_at from penstock.spent as s where s.partition_id = p.id order by s.id desc limit 1) as last
     cross join lateral (
           select clock_timestamp() + greatest(1, floor(q.rate)) / q.rate * interval '1 second' as full_at) as empty
     where q.id = p_queue and last.full_at > empty.full_at;
end $$;

-- What changed in the catalogue since a version, for another shard to take over.
create function penstock.catalogue_since(p_version bigint) returns json
language sql stable
begin atomic
    select json_build_object(
        'system', c.system, 'version', c.version,
        'shards', (select coalesce(json_agg(s), '[]') from penstock.shard as s),
        'queues', (select coalesce(json_agg(q), '[]') from penstock.queue as q where q.version > p_version),
        'partitions', (select coalesce(json_agg(p), '[]') from penstock.partition as p
                         join penstock.queue as q on q.id = p.queue_id where q.version > p_version),
        'maps', (select coalesce(json_agg(m), '[]') from penstock.queue_map as m
                   join penstock.queue as q on q.id = m.queue_id where q.version > p_version))
      from penstock.catalogue as c;
end;

-- Takes over what another shard's catalogue_since said; whether it was newer than what is here. Locks: the catalogue, then
-- the rows that change; for a moment only (55P03), since a transaction above READ COMMITTED may hold a map for long, and
-- everybody who wants the catalogue would wait with this.
create function penstock.take_catalogue(p_given json) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_here penstock.catalogue;
begin
    perform set_config('lock_timeout', '2s', true);
    select * into v_here from penstock.catalogue for no key update;
    if v_here.system <> (p_given ->> 'system')::uuid then
        raise exception using errcode = '22023', message = 'the catalogues are of different systems';
    end if;
    if (p_given ->> 'version')::bigint <= v_here.version then
        return false;
    end if;
    insert into penstock.shard (number, identity, address, state)
    select number, identity, address, state from json_populate_recordset(null::penstock.shard, p_given -> 'shards')
    on conflict (number) do update
       set identity = excluded.identity, address = excluded.address, state = excluded.state
     where (shard.identity, shard.address, shard.state) is distinct from (excluded.identity, excluded.address, excluded.state);
    insert into penstock.queue (id, name, version, max_length, max_wait_seconds, is_paused, created_at, partitions, epoch,
                                is_open, homes, running_limit, rate, per_key, key_rate, fair_by, weights, holds_on_retry,
                                halts_on_dead)
    select id, name, version, max_length, max_wait_seconds, is_paused, created_at, partitions, epoch, is_open, homes,
           running_limit, rate, per_key, key_rate, fair_by, weights, holds_on_retry, halts_on_dead
      from json_populate_recordset(null::penstock.queue, p_given -> 'queues')
    on conflict (id) do nothing;
    -- What came back was shut, and it may not have been told here.
    perform penstock.note_shut(p.id, p.left_at)
       from json_populate_recordset(null::penstock.partition, p_given -> 'partitions') as n
       join penstock.partition as p on p.id = n.id and p.left_at is not null and p.left_at is distinct from n.left_at;
    insert into penstock.partition (id, queue_id, number, name, shard, is_current, left_at)
    select id, queue_id, number, name, shard, is_current, left_at
      from json_populate_recordset(null::penstock.partition, p_given -> 'partitions')
    on conflict (id) do update
       set is_current = excluded.is_current, left_at = excluded.left_at,
           shut_by = case when not excluded.is_current then partition.shut_by end
     where (partition.is_current, partition.left_at) is distinct from (excluded.is_current, excluded.left_at);
    -- The maps first: whoever holds one above READ COMMITTED finds by it that its snapshot is old.
    insert into penstock.queue_map (queue_id, epoch, partition_ids, homes, set_at, opened_at, is_drained, is_carried)
    select queue_id, epoch, partition_ids, homes, set_at, opened_at, is_drained, is_carried
      from json_populate_recordset(null::penstock.queue_map, p_given -> 'maps')
    on conflict (queue_id, epoch) do update
       set partition_ids = excluded.partition_ids, opened_at = excluded.opened_at,
           is_drained = queue_map.is_drained or excluded.is_drained, is_carried = excluded.is_carried;
    update penstock.queue as q
       set version = n.version, max_length = n.max_length, max_wait_seconds = n.max_wait_seconds, is_paused = n.is_paused,
           partitions = n.partitions, epoch = n.epoch, is_open = n.is_open, homes = n.homes, running_limit = n.running_limit,
           rate = n.rate, key_rate = n.key_rate, weights = n.weights
      from json_populate_recordset(null::penstock.queue, p_given -> 'queues') as n where q.id = n.id;
    perform penstock.forget_drained();
    perform penstock.note_drained();
    perform penstock.fit_buckets(n.id), penstock.wake(n.id)
       from json_populate_recordset(null::penstock.queue, p_given -> 'queues') as n;
    perform setval(pg_get_serial_sequence('penstock.queue', 'id'), greatest(1, (select max(id) from penstock.queue))),
            setval(pg_get_serial_sequence('penstock.partition', 'id'), greatest(1, (select max(id) from penstock.partition)));
    update penstock.catalogue set version = (p_given ->> 'version')::bigint;
    return true;
end $$;

-- What the catalogue says, in short: two shards with the same version and another digest contradict each other.
create function penstock.catalogue_digest() returns text
language sql stable
begin atomic
    select md5(concat(
        (select string_agg(s::text, ',' order by s.number) from penstock.shard as s),
        (select string_agg(row(q.id, q.name, q.version, q.max_length, q.max_wait_seconds, q.is_paused, q.partitions, q.epoch,
                               q.is_open, q.homes, q.running_limit, q.rate, q.per_key, q.key_rate, q.fair_by, q.weights::text,
                               q.holds_on_retry, q.halts_on_dead)::text, ',' order by q.id) from penstock.queue as q),
        (select string_agg(row(p.id, p.queue_id, p.number, p.name, p.shard, p.is_current, p.left_at)::text, ',' order by p.id)
           from penstock.partition as p),
        (select string_agg(row(m.queue_id, m.epoch, m.partition_ids, m.is_drained)::text, ',' order by m.queue_id, m.epoch)
           from penstock.queue_map as m)));
end;

-- Makes this database a shard, once: its number, its identity, and the system it belongs to. Nothing may have been
-- written to it under another number. Locks: the catalogue.
create function penstock.take_up_shard(p_number int, p_identity uuid, p_system uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_here penstock.catalogue;
begin
    select * into v_here from penstock.catalogue for no key update;
    if v_here.identity is not null then
        return;
    end if;
    if p_number <> v_here.number then
        perform penstock.refuse_used();
        execute format('alter sequence penstock.range_number start with %s restart', p_number);
    end if;
    update penstock.catalogue set number = p_number, identity = p_identity, system = p_system;
end $$;

-- Draws range numbers for nobody until another shard's is reached, but no more than so many; how many.
create function penstock.draw_up_to(p_range bigint, p_most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
    v_last  bigint;
begin
    select count(n), max(n) into v_count, v_last
      from (select nextval('penstock.range_number') as n
              from penstock.range_number as s
             cross join generate_series(1, least(p_most, p_range / 1024 - s.last_value / 1024 + (not s.is_called)::int))) as drawn;
    if v_count > 0 then
        perform penstock.note_shortage(v_last);
    end if;
    return v_count;
end $$;

-- Lets a shard that has not written anything yet draw range numbers above this one, with a table for its first jobs.
create function penstock.start_ranges_after(p_range bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_first bigint := (p_range / 1024 + 1) * 1024 + penstock.here();
    v_high  bigint;
begin
    if exists (select from penstock.job) or (select last_value from penstock.range_number) >= v_first then
        return;
    end if;
    execute format('alter sequence penstock.range_number restart with %s', v_first);
    select max(high) into v_high from penstock.job_part;
    if v_high < v_first + 65536 * 1024 then
        perform penstock.add_job_part((v_first - v_high) / 1024 + 65536);
    end if;
end $$;

-- A database with jobs or queues of its own cannot become a further shard of another system.
create function penstock.refuse_used() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.queue) or (select is_called from penstock.range_number) then
        raise exception using errcode = '22023', message =
            'InvalidJob: url: the database has queues of its own: a further shard has to be empty';
    end if;
end $$;

-- Enters a shard into the catalogue, or its new address; whether anything changed. Locks: the catalogue.
create function penstock.enter_shard(p_number int, p_identity uuid, p_address text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.shard where number = p_number and identity = p_identity and address = p_address) then
        return false;
    end if;
    perform penstock.next_version();
    insert into penstock.shard (number, identity, address) values (p_number, p_identity, p_address)
    on conflict (number) do update set address = excluded.address where shard.identity = excluded.identity;
    return true;
end $$;

-- Draws a number for a database that is to become a further shard, and enters it as joining: nothing is placed there
-- yet. One that was begun and not ended is gone on with. Numbers are never given again. Locks: the catalogue.
create function penstock.reserve_shard(p_identity uuid, p_address text, out number smallint, out identity uuid)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.next_version();
    select s.number, s.identity into reserve_shard.number, reserve_shard.identity
      from penstock.shard as s where s.address = p_address and s.state = 'joining';
    if not found then
        insert into penstock.shard as s (number, identity, address, state)
        select 1 + max(o.number), p_identity, p_address, 'joining' from penstock.shard as o
        returning s.number, s.identity into reserve_shard.number, reserve_shard.identity;
    end if;
end $$;

-- From here on a shard is in another state; whether it was not before. Locks: the catalogue.
create function penstock.set_shard_state(p_number int, p_state text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.next_version();
    update penstock.shard set state = p_state where number = p_number and state <> p_state;
    return found;
end $$;

select penstock.renew_grants();
