-- The catalogue goes from the shard that leads to the others.

-- What changed in the catalogue since a version, for another shard to take over.
create or replace function @schema@.catalogue_since(p_version bigint) returns json
language sql stable
begin atomic
    select json_build_object(
        'system', c.system, 'version', c.version,
        'shards', (select coalesce(json_agg(s), '[]') from @schema@.shard as s),
        'queues', (select coalesce(json_agg(q), '[]') from @schema@.queue as q where q.version > p_version),
        'partitions', (select coalesce(json_agg(p), '[]') from @schema@.partition as p
                         join @schema@.queue as q on q.id = p.queue_id where q.version > p_version),
        'maps', (select coalesce(json_agg(m), '[]') from @schema@.queue_map as m
                   join @schema@.queue as q on q.id = m.queue_id where q.version > p_version))
      from @schema@.catalogue as c;
end;

-- Takes over what another shard's catalogue_since said; whether it was newer than what is here. Locks: the catalogue, then
-- the rows that change; for a moment only (55P03), since a transaction above READ COMMITTED may lock a map for long, and
-- everybody who wants the catalogue would wait with this. A copy may miss steps that states took on the lead.
create or replace function @schema@.take_catalogue(p_given json) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_here @schema@.catalogue;
begin
    perform set_config('lock_timeout', '2s', true);
    v_here := (select c from @schema@.catalogue as c for no key update);
    if v_here.system <> (p_given ->> 'system')::uuid then
        raise exception using errcode = '22023', message = 'the catalogues are of different systems';
    end if;
    if (p_given ->> 'version')::bigint <= v_here.version then
        return false;
    end if;
    perform set_config('@schema@.copies', 'on', true);
    insert into @schema@.shard (number, identity, address, state)
    select number, identity, address, state from json_populate_recordset(null::@schema@.shard, p_given -> 'shards')
    on conflict (number) do update
       set identity = excluded.identity, address = excluded.address, state = excluded.state
     where (shard.identity, shard.address, shard.state) is distinct from (excluded.identity, excluded.address, excluded.state);
    -- First, for a queue that was made since may have the name that a deleted one had.
    update @schema@.queue as q set name = n.name
      from json_populate_recordset(null::@schema@.queue, p_given -> 'queues') as n where q.id = n.id and q.name <> n.name;
    update @schema@.partition as p set name = n.name
      from json_populate_recordset(null::@schema@.partition, p_given -> 'partitions') as n where p.id = n.id and p.name <> n.name;
    insert into @schema@.queue (id, name, version, is_paused, created_at, deleted_at, partitions, epoch, homes, rules, weights,
                                limited_at)
    select id, name, version, is_paused, created_at, deleted_at, partitions, epoch, homes, rules, weights, limited_at
      from json_populate_recordset(null::@schema@.queue, p_given -> 'queues')
    on conflict (id) do nothing;
    -- What came back was shut, and it may not have been told here.
    perform @schema@.spend_rate(p.id)
       from json_populate_recordset(null::@schema@.partition, p_given -> 'partitions') as n
       join @schema@.partition as p on p.id = n.id and p.state = 'left' and p.left_at is distinct from n.left_at;
    -- Whether a place is shut is not copied: each shard says it of its own.
    insert into @schema@.partition (id, queue_id, number, name, shard, state, left_at)
    select id, queue_id, number, name, shard,
           case when state = 'current' then state when left_at is null then 'unused' else 'left' end, left_at
      from json_populate_recordset(null::@schema@.partition, p_given -> 'partitions')
    on conflict (id) do update
       set state = case when partition.state = 'shut' and excluded.state <> 'current'
                         and (partition.shard = v_here.number or partition.left_at is not distinct from excluded.left_at)
                        then 'shut' else excluded.state end,
           left_at = excluded.left_at, shut_by = case when excluded.state <> 'current' then partition.shut_by end
     where (partition.state = 'current', partition.left_at) is distinct from (excluded.state = 'current', excluded.left_at);
    -- The maps first: whoever has locked one above READ COMMITTED finds by it that its snapshot is old.
    insert into @schema@.queue_map (queue_id, epoch, partition_ids, homes, set_at, state, is_carried)
    select queue_id, epoch, partition_ids, homes, set_at, state, is_carried
      from json_populate_recordset(null::@schema@.queue_map, p_given -> 'maps')
    on conflict (queue_id, epoch) do update
       set partition_ids = excluded.partition_ids, is_carried = excluded.is_carried,
           state = case when queue_map.state = 'drained' then 'drained' else excluded.state end;
    insert into @schema@.map_here (queue_id, epoch)
    select queue_id, epoch from json_populate_recordset(null::@schema@.queue_map, p_given -> 'maps')
     where state not in ('announced', 'open')
    on conflict do nothing;
    update @schema@.queue as q
       set version = n.version, is_paused = n.is_paused, deleted_at = n.deleted_at, partitions = n.partitions,
           epoch = n.epoch, homes = n.homes, rules = n.rules, weights = n.weights, limited_at = n.limited_at
      from json_populate_recordset(null::@schema@.queue, p_given -> 'queues') as n where q.id = n.id;
    perform @schema@.forget_drained();
    perform @schema@.note_drained();
    perform @schema@.fit_buckets(n.id), @schema@.wake(n.id)
       from json_populate_recordset(null::@schema@.queue, p_given -> 'queues') as n;
    perform setval(pg_get_serial_sequence('@schema@.queue', 'id'), greatest(1, (select max(id) from @schema@.queue))),
            setval(pg_get_serial_sequence('@schema@.partition', 'id'), greatest(1, (select max(id) from @schema@.partition)));
    update @schema@.catalogue set version = (p_given ->> 'version')::bigint;
    perform set_config('@schema@.copies', 'off', true);
    return true;
end $$;

-- What the catalogue says, in short: two shards with the same version and another digest contradict each other.
create or replace function @schema@.catalogue_digest() returns text
language sql stable
begin atomic
    select md5(concat(
        (select string_agg(s::text, ',' order by s.number) from @schema@.shard as s),
        (select string_agg(row(q.id, q.name, q.version, q.is_paused, q.deleted_at is null, q.partitions, q.epoch,
                               q.homes, q.rules, q.weights::text, q.limited_at)::text, ',' order by q.id) from @schema@.queue as q),
        (select string_agg(row(p.id, p.queue_id, p.number, p.name, p.shard, p.state = 'current', p.left_at)::text, ',' order by p.id)
           from @schema@.partition as p),
        (select string_agg(row(m.queue_id, m.epoch, m.partition_ids, m.state)::text, ',' order by m.queue_id, m.epoch)
           from @schema@.queue_map as m)));
end;
