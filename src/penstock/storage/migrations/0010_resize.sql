-- breaking: no
-- Resize: a queue gets another number of partitions while it is used. On a queue with an owner that is a new map of
-- keys to partitions, known by its epoch. Producers hold the map they write by (penstock.lock_map); the old one is closed
-- when nobody holds it any more, and drained when nothing is left of what was written by it. Until then a job waits for
-- what earlier maps sent to its key's earlier partitions.
--
-- Over several shards that takes two steps. First the new map is set on the lead and carried to the others, and nobody
-- may write by it: whoever learns it writes by no map at all. When every shard that has a partition of the map before
-- knows it, nobody writes by that one any more, and the new one is opened (penstock.open_map): a job by the new map on
-- one shard is never acknowledged before one by the old map begins on another. A shard that answers neither holds all
-- keys up: the change is undone by a further map, with the partitions there were (penstock.undo_map). What is left
-- of an old map is known on its shard only; it is told to the others (map_elsewhere), who take it that everything is left
-- until they are told.

create index scheduled_holding on penstock.scheduled (partition_id, epoch) where pos is not null;

-- Partitions in which few keys are left of what a closed map sent there, and which: only these are waited for. The keys
-- may be more than there are by now, never fewer: nothing is written by a closed map. The list is made page by page.
create table penstock.map_rest (
    queue_id     int not null,
    epoch        int not null,
    partition_id int not null,
    -- Null until the first list is whole.
    keys         bytea[],
    -- The next list in the making: what was found in the ranges up to this one.
    found        bytea[] not null default '{}',
    through      bigint not null default 0,
    primary key (queue_id, epoch, partition_id),
    foreign key (queue_id, epoch) references penstock.queue_map
);

-- Keys of which jobs came from a shard that is being drained, by the map they were routed by there. They are waited for
-- here as they were there. There may be more than there are by now.
create table penstock.map_guest (
    queue_id     int not null,
    epoch        int not null,
    key          bytea not null,
    job_id       bigint not null,
    partition_id int not null,
    primary key (queue_id, epoch, key, job_id)
);

-- Of what is told to other shards. Drawn before the look that it is about: of two, the higher has seen whatever was there
-- when it was drawn.
create sequence penstock.report_number as bigint cache 1 no cycle;

-- What other shards have told of maps that are closed there; see penstock.left_of_map.
create table penstock.map_elsewhere (
    queue_id  int not null,
    epoch     int not null,
    shard     smallint not null,
    open_ids  int[] not null,
    held_keys bytea[] not null,
    number    bigint not null,
    primary key (queue_id, epoch, shard)
);

-- The shards on which nothing is left.
create function penstock.drained_shards() returns smallint[]
language sql stable
begin atomic
    select coalesce(array_agg(number), '{}') from penstock.shard where state = 'drained';
end;

-- A partition that moved has a place on each shard it was on, and where its queue has a limit or a rate only one of them
-- starts jobs: the one it had before, until nothing can start there any more. That one is then shut (partition.shut_by),
-- what came there late is carried on, and the others are told: these are the places on other shards that are shut.
create table penstock.shut_elsewhere (
    partition_id int primary key,
    -- As in the partition: what was said of an earlier time does not count.
    left_at      bigint not null
);

-- Whether nothing starts in a place that a partition has left, for all that is known here.
create function penstock.is_shut(p_place penstock.partition) returns boolean
language sql stable
begin atomic
    select case when p_place.shard = penstock.here() then p_place.shut_by is not null
                else p_place.shard = any (penstock.drained_shards())
                     or exists (select from penstock.shut_elsewhere as s
                                 where s.partition_id = p_place.id and s.left_at >= p_place.left_at) end;
end;

-- The earlier place that this one waits for; null: none, or its queue has neither limit nor rate. One that a move which
-- was taken back was to lead to is neither current nor left, and waits for any other.
create function penstock.waits_for(p_place penstock.partition) returns int
language sql stable
begin atomic
    select o.id
      from penstock.partition as o join penstock.queue as q on q.id = o.queue_id
     where o.queue_id = p_place.queue_id and o.number = p_place.number and o.id <> p_place.id
       and (q.running_limit is not null or q.rate is not null)
       and (o.left_at < coalesce(p_place.left_at, 9223372036854775807)
            or o.is_current and not p_place.is_current and p_place.left_at is null)
       and not coalesce(penstock.is_shut(o), false)
     order by o.id limit 1;
end;

-- Whether nothing may start in a partition of this shard: it is shut, or waits for its earlier place.
create function penstock.is_still(p_partition int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_place penstock.partition;
begin
    select * into v_place from penstock.partition where id = p_partition;
    return v_place.shut_by is not null
        or exists (select from penstock.partition as o
                    where o.queue_id = v_place.queue_id and o.number = v_place.number and o.id <> p_partition)
           and penstock.waits_for(v_place) is not null;
end $$;

-- Whether a partition may come back to a place: not while anything starts there and elsewhere too.
create function penstock.may_return(p_place penstock.partition) returns boolean
language sql stable
begin atomic
    select p_place.left_at is null or penstock.is_shut(p_place) or not exists (
           select from penstock.partition as o join penstock.queue as q on q.id = o.queue_id
            where o.queue_id = p_place.queue_id and o.number = p_place.number and o.id <> p_place.id
              and (q.running_limit is not null or q.rate is not null)
              and (o.is_current or o.left_at is not null and not penstock.is_shut(o)));
end;

-- The places on this shard that are shut, where others may wait for them.
create function penstock.shut_places() returns table (partition_id int, left_at bigint)
language sql stable
begin atomic
    select p.id, p.left_at from penstock.partition as p
     where p.shard = penstock.here() and p.shut_by is not null and p.left_at is not null and exists (
           select from penstock.partition as o where o.queue_id = p.queue_id and o.number = p.number and o.id <> p.id);
end;

-- Takes over that a place on another shard is shut; whether that is news. Its rate may just have been used up. Where the
-- place is not known yet it is told again.
create function penstock.note_shut(p_partition int, p_left_at bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into penstock.shut_elsewhere as s (partition_id, left_at)
    select p_partition, p_left_at
     where exists (select from penstock.partition where id = p_partition)
       and not exists (select from penstock.shut_elsewhere where partition_id = p_partition and left_at >= p_left_at)
    on conflict (partition_id) do update set left_at = excluded.left_at where s.left_at < excluded.left_at;
    if not found then
        return false;
    end if;
    insert into penstock.spent (partition_id, full_at)
    select o.id, clock_timestamp() + greatest(1, floor(q.rate)) / q.rate * interval '1 second'
      from penstock.partition as p
      join penstock.partition as o on o.queue_id = p.queue_id and o.number = p.number and o.id <> p.id
      join penstock.queue as q on q.id = p.queue_id and q.rate is not null
     where p.id = p_partition and o.shard = penstock.here();
    perform penstock.wake(queue_id) from penstock.partition where id = p_partition;
    return true;
end $$;

-- Takes over that the places on drained shards are shut: nobody may have told.
create function penstock.note_drained() returns void
language sql
begin atomic
    select penstock.note_shut(id, left_at) from penstock.partition
     where shard = any (penstock.drained_shards()) and left_at is not null;
end;

-- The shard for a further partition of a queue: of those in use, without those to avoid if there are others, the one that
-- has the fewest of the partitions given, in turns where several have.
create function penstock.shard_for(p_queue int, p_number int, p_avoid int[] default '{}', p_ids int[] default '{}')
returns smallint
language sql stable
begin atomic
    select coalesce((
        select s.number
          from (select number, row_number() over (order by number) - 1 as place, count(*) over () as of
                  from penstock.shard as a
                 where state = 'active'
                   and (number <> all (p_avoid) or not exists (
                       select from penstock.shard as o where o.state = 'active' and o.number <> all (p_avoid)))) as s
         order by (select count(*) from penstock.partition as p where p.id = any (p_ids) and p.shard = s.number),
                  (s.place - (p_number + p_queue - 1) % s.of + s.of) % s.of limit 1), penstock.here());
end;

-- The last place of a number in a queue that may be used; null where there is none.
create function penstock.former_place(p_queue int, p_number int) returns int
language sql stable
begin atomic
    select p.id from penstock.partition as p
     where p.queue_id = p_queue and p.number = p_number
       and not exists (select from penstock.shard as s where s.number = p.shard and s.state <> 'active')
     order by p.left_at desc nulls last, p.id desc limit 1;
end;

-- The partitions of a queue by number, as many as are wanted: those of the map of now, and further ones: at the last place
-- that a number had, if that may be used, and made where there is none.
create function penstock.partitions_for(p_queue int, p_partitions int, p_avoid int[] default '{}') returns int[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ids    int[];
    v_id     int;
    v_number int;
begin
    select m.partition_ids[1:p_partitions] into v_ids
      from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch where q.id = p_queue;
    v_ids := coalesce(v_ids, '{}');
    for v_number in cardinality(v_ids) .. p_partitions - 1 loop
        v_id := penstock.former_place(p_queue, v_number);
        if v_id is null then
            insert into penstock.partition (queue_id, number, name, shard, is_current)
            select q.id, v_number, case v_number when 0 then q.name else q.name || '__p' || v_number end,
                   penstock.shard_for(q.id, v_number, p_avoid, v_ids), false
              from penstock.queue as q where q.id = p_queue
            returning id into v_id;
        end if;
        v_ids := v_ids || v_id;
    end loop;
    return v_ids;
end $$;

-- Gives a queue a map, in a change of the catalogue that the caller began (penstock.next_version). With a new epoch the
-- map before it stays until it is drained, and nobody may write by the new one until it is open. The old map's row is
-- changed first: a producer above READ COMMITTED holds it, and finds by it that its snapshot is old. Partitions are
-- added, never taken away: those not in the map are served until they are empty. Locks: the map's row, then the queue's.
create function penstock.set_map(
    p_queue int, p_version bigint, p_ids int[], p_homes smallint[], p_is_new boolean, p_is_open boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch int;
begin
    select epoch into v_epoch from penstock.queue where id = p_queue;
    update penstock.queue_map as m
       set partition_ids = case when p_is_new then m.partition_ids else p_ids end,
           is_carried = m.is_carried and not (p_is_new and exists (select from penstock.shard offset 1))
     where m.queue_id = p_queue and m.epoch = v_epoch;
    if p_is_new or not found then
        v_epoch := v_epoch + p_is_new::int;
        insert into penstock.queue_map (queue_id, epoch, partition_ids, homes, opened_at)
        values (p_queue, v_epoch, p_ids, p_homes, case when p_is_open then now() end);
    end if;
    update penstock.queue
       set partitions = cardinality(p_ids), epoch = v_epoch, homes = p_homes, is_open = p_is_open, version = p_version
     where id = p_queue;
    -- What comes back was shut, and not everybody may have been told.
    perform penstock.note_shut(id, left_at) from penstock.partition
      where queue_id = p_queue and id = any (p_ids) and not is_current and left_at is not null;
    update penstock.partition
       set is_current = id = any (p_ids), left_at = case when id <> all (p_ids) then p_version end,
           shut_by = case when id <> all (p_ids) then shut_by end
     where queue_id = p_queue and is_current <> (id = any (p_ids));
    perform penstock.wake(p_queue);
end $$;

-- The homes of idempotency keys by a further map: a shard that has no partition in it is replaced, in its place, so that
-- the keys of the others stay where they are.
create function penstock.homes_by(p_homes smallint[], p_ids int[]) returns smallint[]
language sql stable
begin atomic
    select array(select case when h.shard = any (s.shards) then h.shard
                             else s.shards[1 + (h.place - 1) % cardinality(s.shards)] end
                   from unnest(p_homes) with ordinality as h(shard, place) order by h.place)
      from (select array_agg(distinct shard order by shard) as shards from penstock.partition where id = any (p_ids)) as s;
end;

-- Begins to give a queue other partitions, in a change of the catalogue that the caller began. A queue without an owner
-- has no use for a further map unless a partition or an idempotency key moves. Where the map before has partitions on other
-- shards, nobody may write by the new one yet. An earlier change that is not through is an error (55006), also where a
-- partition would come back to a place that it has not quite left.
create function penstock.change_map(p_queue penstock.queue, p_version bigint, p_ids int[], p_is_move boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_homes smallint[] := penstock.homes_by(p_queue.homes, p_ids);
    v_early penstock.partition;
begin
    if not p_queue.is_open then
        raise exception using errcode = '55006',
            message = format('another change of the partitions of queue %s is under way', quote_literal(p_queue.name));
    end if;
    select p.* into v_early from penstock.partition as p
     where p.id = any (p_ids) and not p.is_current and not penstock.may_return(p) order by p.number limit 1;
    if found then
        raise exception using errcode = '55006', message = format(
            'partition %s of queue %s has left shard %s not long ago, and what it left there is not worked off yet',
            v_early.number, quote_literal(p_queue.name), v_early.shard);
    end if;
    if not (p_is_move or p_queue.is_owned or v_homes <> p_queue.homes) then
        perform penstock.set_map(p_queue.id, p_version, p_ids, v_homes, false, true);
        return;
    end if;
    perform penstock.set_map(p_queue.id, p_version, p_ids, v_homes, true, not exists (
        select from penstock.queue_map as m join penstock.partition as p on p.id = any (m.partition_ids)
         where m.queue_id = p_queue.id and m.epoch = p_queue.epoch and p.shard <> penstock.here()));
end $$;

-- Sets the number of partitions; whether anything changed. Locks: the catalogue, the map's row, the queue's.
create function penstock.resize(p_name text, p_partitions int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   penstock.queue;
    v_version bigint;
begin
    if not exists (select from penstock.queue where name = p_name and partitions <> p_partitions) then
        return false;
    end if;
    v_version := penstock.next_version();
    select * into v_queue from penstock.queue where name = p_name;
    if v_queue.partitions = p_partitions then
        return false;
    end if;
    perform penstock.change_map(v_queue, v_version, penstock.partitions_for(v_queue.id, p_partitions), false);
    return true;
end $$;

-- Moves partitions of a queue to other shards, each by its number: another partition of the same number and name takes
-- its place in a new map. Whether any was not there already. Locks: the catalogue, the map's row, the queue's.
create function penstock.move_partitions(p_name text, p_numbers int[], p_shards int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   penstock.queue;
    v_version bigint := penstock.next_version();
    v_before  int[];
    v_ids     int[];
begin
    select * into v_queue from penstock.queue where name = p_name;
    select m.partition_ids into v_before
      from penstock.queue_map as m where m.queue_id = v_queue.id and m.epoch = v_queue.epoch;
    insert into penstock.partition (queue_id, number, name, shard, is_current)
    select v_queue.id, p.number, p.name, g.shard, false
      from unnest(p_numbers, p_shards) as g(number, shard)
      join penstock.partition as p on p.id = v_before[1 + g.number] and p.shard <> g.shard
    on conflict (queue_id, number, shard) do nothing;
    v_ids := array(
        select coalesce(p.id, b.id)
          from unnest(v_before) with ordinality as b(id, place)
          left join unnest(p_numbers, p_shards) as g(number, shard) on g.number = b.place - 1
          left join penstock.partition as p on p.queue_id = v_queue.id and p.number = g.number and p.shard = g.shard
         order by b.place);
    if v_ids = v_before then
        return false;
    end if;
    perform penstock.change_map(v_queue, v_version, v_ids, true);
    return true;
end $$;

-- Lets everybody write by a map, once no shard lets anybody write by the one before; false where it is open, or not the
-- queue's any more. Locks: the catalogue, the map's row, the queue's.
create function penstock.open_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint := penstock.next_version();
begin
    update penstock.queue_map as m set opened_at = now()
      from penstock.queue as q
     where q.id = p_queue and q.epoch = p_epoch and not q.is_open and m.queue_id = q.id and m.epoch = p_epoch;
    update penstock.queue set is_open = true, version = v_version where id = p_queue and epoch = p_epoch and not is_open;
    return found;
end $$;

-- Takes back a map that is not open: a further one has the partitions of the one before. Each key is where it was, so
-- that nothing has to wait, and a shard that has not heard of any of it goes on by the map it knows. Nothing was ever
-- written by the one that is taken back: it is drained, and nobody waits for its places. False where it is open, or not the queue's any more. Locks: the
-- catalogue, maps' rows, the queue's.
create function penstock.undo_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint := penstock.next_version();
    v_before  penstock.queue_map;
begin
    select m.* into v_before
      from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch - 1
     where q.id = p_queue and q.epoch = p_epoch and not q.is_open;
    if not found then
        return false;
    end if;
    perform penstock.set_map(p_queue, v_version, v_before.partition_ids, v_before.homes, true, true);
    update penstock.queue_map set is_drained = true where queue_id = p_queue and epoch = p_epoch;
    update penstock.partition set left_at = null where queue_id = p_queue and left_at = v_version;
    return true;
end $$;

-- Calls maps closed that are not their queue's any more and that no producer holds, nor a load that is being decided
-- about on another shard. Only tries: whoever waited for the
-- producers would stand in the way of all that come after. Not in the transaction that set the new map: it must be
-- committed before the old one is found free. Locks: rows of old maps, skipping those held. Returns how many it closed.
create function penstock.close_maps() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_map   record;
    v_count int := 0;
begin
    for v_map in
        select m.queue_id, m.epoch from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id
         where not m.is_closed and m.epoch < q.epoch order by m.queue_id, m.epoch for update of m skip locked
    loop
        update penstock.queue_map as m set is_closed = true
         where m.queue_id = v_map.queue_id and m.epoch = v_map.epoch
           and not exists (select from penstock.load_hold as h where h.queue_id = m.queue_id and h.epoch = m.epoch);
        v_count := v_count + found::int;
    end loop;
    return v_count;
end $$;

-- Whether anything that a map sent to a partition is ready or runs there. Index: ready_of_epoch.
create function penstock.is_open(p_partition int, p_epoch int) returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select exists (select from penstock.ready where partition_id = p_partition and epoch = p_epoch)
        or exists (select from penstock.lease where partition_id = p_partition and epoch = p_epoch)
$$;

-- What is left of an earlier map on this shard: the partitions where anything of it is ready or runs (all of them, while
-- producers hold it), unless what is left there is listed by key; and the keys that are listed, or held by a retry or a
-- person's decision, or of jobs that leave this shard or came from one that is being drained. Once the map is closed both
-- only become less, so that an older answer is never too little: a job of it can only stay, end, wait for its retry or be
-- halted, each by the map it has. Where one comes here from a shard that is being drained, it does not leave that one
-- before everybody was told of it from here (see carrying). One look: in one snapshot with
-- whatever else the statement or its transaction reads. Indexes: ready_of_epoch, scheduled_holding.
create function penstock.left_of_map(p_queue int, p_epoch int, out open_ids int[], out held_keys bytea[])
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select case when not m.is_closed
                then array(select p.id from penstock.partition as p
                            where p.id = any (m.partition_ids) and p.shard = penstock.here())
                else array(select p.id from penstock.partition as p
                            where p.queue_id = p_queue and penstock.is_open(p.id, p_epoch)
                              and not exists (select from penstock.map_rest as r
                                               where r.queue_id = p_queue and r.epoch = p_epoch and r.partition_id = p.id
                                                 and r.keys is not null)) end,
           array(select j.key from penstock.partition as p
                   join penstock.scheduled as s on s.partition_id = p.id and s.epoch = p_epoch and s.pos is not null
                  cross join lateral unnest(penstock.positions(s.low, s.high, s.members)) as b
                  cross join lateral (select key from penstock.job_stored where id = s.range * 1024 + b limit 1) as j
                  where p.queue_id = p_queue and j.key is not null
                 union
                 select h.key from penstock.halted as h where h.queue_id = p_queue and h.epoch = p_epoch
                 union
                 select unnest(r.keys) from penstock.map_rest as r
                  where r.queue_id = p_queue and r.epoch = p_epoch and penstock.is_open(r.partition_id, p_epoch)
                 union
                 select g.key from penstock.map_guest as g where g.queue_id = p_queue and g.epoch = p_epoch
                 union
                 select j.key from penstock.partition as p
                   join penstock.outbox as o on o.partition_id = p.id and o.epoch = p_epoch
                  cross join lateral (select key from penstock.job_stored where id = o.job_id limit 1) as j
                  where p.queue_id = p_queue and j.key is not null)
      from penstock.queue_map as m where m.queue_id = p_queue and m.epoch = p_epoch
$$;

-- Calls maps drained by which nothing is left that is ready, runs, or holds its key, on any shard; also not a halted key,
-- whose dead letter a retry brings back to its place. The maps are locked by one statement and looked at by the next. It
-- is a change of the catalogue: for the lead. Locks: the catalogue where it seems that one is drained, then rows of
-- closed maps, skipping those held. Returns how many it drained.
create function penstock.drain_maps() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queues  int[];
    v_epochs  int[];
    v_version bigint;
    v_count   int;
begin
    select array_agg(m.queue_id), array_agg(m.epoch) into v_queues, v_epochs
      from penstock.queue_map as m where m.is_closed and not m.is_drained and not penstock.has_left(m);
    if v_queues is null or not penstock.is_lead() then
        return 0;
    end if;
    v_version := penstock.next_version();
    select array_agg(queue_id), array_agg(epoch) into v_queues, v_epochs
      from (select queue_id, epoch from penstock.queue_map
             where (queue_id, epoch) in (select * from unnest(v_queues, v_epochs)) and is_closed and not is_drained
             order by queue_id, epoch for update skip locked) as m;
    with drained as (
        update penstock.queue_map as m set is_drained = true
         where (m.queue_id, m.epoch) in (select * from unnest(v_queues, v_epochs)) and not penstock.has_left(m)
        returning m.queue_id, m.epoch
    ), told as (
        update penstock.queue as q set version = v_version from (select distinct queue_id from drained) as d where q.id = d.queue_id
    )
    select count(penstock.wake(queue_id)) into v_count from drained;
    perform penstock.forget_drained();
    return v_count;
end $$;

-- Forgets what was known of what is left of drained maps.
create function penstock.forget_drained() returns void
language sql
begin atomic
    delete from penstock.map_rest as r using penstock.queue_map as m
     where m.queue_id = r.queue_id and m.epoch = r.epoch and m.is_drained;
    delete from penstock.map_elsewhere as r using penstock.queue_map as m
     where m.queue_id = r.queue_id and m.epoch = r.epoch and m.is_drained;
end;

-- Forgets jobs of map_guest that their keys do not wait for any more. In one snapshot: a job is found in one place.
create function penstock.forget_guests() returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    delete from penstock.map_guest as g
     where not exists (
           select from penstock.ready as r
            where r.range = g.job_id / 1024 and penstock.has_member(r.low, r.high, r.members, (g.job_id % 1024)::int)
           union all
           select from penstock.lease as l
            where l.range = g.job_id / 1024 and penstock.has_member(l.low, l.high, l.members, (g.job_id % 1024)::int)
           union all
           select from penstock.scheduled as s
            where s.range = g.job_id / 1024 and s.pos is not null
              and penstock.has_member(s.low, s.high, s.members, (g.job_id % 1024)::int)
           union all
           select from penstock.halted as h where h.queue_id = g.queue_id and h.key = g.key and h.job_id = g.job_id)
$$;

-- Whether anything is left of a map that is closed, here or, for all that is known, elsewhere.
create function penstock.has_left(p_map penstock.queue_map) returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select exists (select from penstock.partition as p
                    where p.queue_id = p_map.queue_id
                      and (penstock.is_open(p.id, p_map.epoch)
                           or exists (select from penstock.scheduled as s
                                       where s.partition_id = p.id and s.epoch = p_map.epoch and s.pos is not null)))
        or exists (select from penstock.halted as h where h.queue_id = p_map.queue_id and h.epoch = p_map.epoch)
        or exists (select from penstock.map_guest as g where g.queue_id = p_map.queue_id and g.epoch = p_map.epoch)
        or exists (select from penstock.partition as p
                     join penstock.outbox as o on o.partition_id = p.id and o.epoch = p_map.epoch
                    where p.queue_id = p_map.queue_id)
        or exists (select from penstock.map_elsewhere as r
                    where r.queue_id = p_map.queue_id and r.epoch = p_map.epoch and (r.open_ids <> '{}' or r.held_keys <> '{}')
                      and r.shard <> all (penstock.drained_shards()))
        or exists (select from penstock.partition as p
                    where p.id = any (p_map.partition_ids) and p.shard <> penstock.here()
                      and p.shard <> all (penstock.drained_shards())
                      and not exists (select from penstock.map_elsewhere as r
                                       where r.queue_id = p_map.queue_id and r.epoch = p_map.epoch and r.shard = p.shard
                                         and r.open_ids = '{}' and r.held_keys = '{}'))
$$;

-- Lists what is left by closed maps where that is at most p_keys keys in a partition: the rest may be a key that waits
-- for a person, and the others must not wait with it. However many jobs are left, one call looks at no more than
-- p_jobs and a range, and the next ones go on from there, in any order of partitions so that none waits for a deep one.
-- A job of a closed map keeps its range wherever it goes, so none is missed between two pages. Locks: rows of closed
-- maps, skipping those held, so that nobody brings a dead letter back meanwhile. Returns how many lists it ended.
create function penstock.list_rest(p_jobs int, p_keys int) returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queues  int[];
    v_epochs  int[];
    v_part    record;
    v_rest    penstock.map_rest;
    v_rows    int;
    v_jobs    int;
    v_is_last boolean;
    v_left    int := p_jobs;
    v_ended   int[] := '{}';
begin
    select array_agg(queue_id), array_agg(epoch) into v_queues, v_epochs
      from (select queue_id, epoch from penstock.queue_map where is_closed and not is_drained
             order by queue_id, epoch for update skip locked) as m;
    for v_part in
        select p.id, g.queue_id, g.epoch
          from unnest(v_queues, v_epochs) as g(queue_id, epoch) join penstock.partition as p on p.queue_id = g.queue_id
         where penstock.is_open(p.id, g.epoch) order by random()
    loop
        exit when v_left <= 0;
        insert into penstock.map_rest (queue_id, epoch, partition_id) values (v_part.queue_id, v_part.epoch, v_part.id)
            on conflict do nothing;
        select * into v_rest from penstock.map_rest
         where queue_id = v_part.queue_id and epoch = v_part.epoch and partition_id = v_part.id;
        -- A range may be in so many parts: one more, and the first is whole.
        v_rows := greatest(v_left, 1024) + 1;
        with next_rows as materialized (
            select * from (
                select range, low, high, members from penstock.ready where partition_id = v_part.id and epoch = v_part.epoch
                union all
                select range, low, high, members from penstock.lease where partition_id = v_part.id and epoch = v_part.epoch
                union all
                select range, low, high, members from penstock.scheduled
                 where partition_id = v_part.id and epoch = v_part.epoch and pos is not null) as l
             where range > v_rest.through order by range limit v_rows
        ), page as materialized (
            select * from (
                select *, sum(penstock.members_count(low, high, members))
                          over (order by range groups between unbounded preceding and 1 preceding) as jobs_before
                  from next_rows
                 where (select count(*) from next_rows) < v_rows or range < (select max(range) from next_rows)) as l
             where coalesce(jobs_before, 0) < v_left
        ), job_found as materialized (
            select j.key from page as l
             cross join lateral unnest(penstock.positions(l.low, l.high, l.members)) as m
             cross join lateral (select key from penstock.job_stored where id = l.range * 1024 + m limit 1) as j
        )
        select (select count(*) from job_found), (select count(*) from page) = (select count(*) from next_rows),
               array(select unnest(v_rest.found) union select key from job_found where key is not null),
               (select max(range) from page)
          into v_jobs, v_is_last, v_rest.found, v_rest.through;
        v_left := v_left - v_jobs;
        if cardinality(v_rest.found) > p_keys then
            v_rest.found := '{}';
            v_rest.through := 0;
        elsif v_is_last then
            v_rest.keys := v_rest.found;
            v_rest.found := '{}';
            v_rest.through := 0;
            v_ended := v_ended || v_part.queue_id;
        end if;
        update penstock.map_rest set keys = v_rest.keys, found = v_rest.found, through = v_rest.through
         where queue_id = v_part.queue_id and epoch = v_part.epoch and partition_id = v_part.id;
    end loop;
    perform penstock.wake(q) from (select distinct unnest(v_ended)) as e(q);
    return cardinality(v_ended);
end $$;

-- What jobs of later maps wait for: each map of a queue that is not drained, and its own; of each earlier one what is
-- left on this shard, and what the others told last. One look. Owners ask often, and mostly there is one map.
create function penstock.open_maps(p_queue int)
returns table (epoch int, partition_ids int[], open_ids int[], held_keys bytea[])
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select m.epoch, m.partition_ids, '{}'::int[], '{}'::bytea[]
      from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch where q.id = p_queue;
    if exists (select from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id and m.epoch < q.epoch
                where q.id = p_queue and not m.is_drained) then
        return query
        select m.epoch, m.partition_ids, l.open_ids || e.open_ids, l.held_keys || e.held_keys
          from penstock.queue as q
          join penstock.queue_map as m on m.queue_id = q.id and m.epoch < q.epoch and not m.is_drained
         cross join lateral penstock.left_of_map(q.id, m.epoch) as l
         cross join lateral (
               select array(select p.id from penstock.partition as p
                              left join penstock.map_elsewhere as r
                                on r.queue_id = q.id and r.epoch = m.epoch and r.shard = p.shard
                             where p.id = any (m.partition_ids) and p.shard <> penstock.here()
                               and p.shard <> all (penstock.drained_shards())
                               and (r.shard is null or p.id = any (r.open_ids))) as open_ids,
                      array(select unnest(r.held_keys) from penstock.map_elsewhere as r
                             where r.queue_id = q.id and r.epoch = m.epoch
                               and r.shard <> all (penstock.drained_shards())) as held_keys) as e
         where q.id = p_queue;
    end if;
end $$;

-- Lets a halted key go on; whether it was halted.
create function penstock.release_key(p_queue int, p_key bytea) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    delete from penstock.halted where queue_id = p_queue and key = p_key;
    if not found then
        return false;
    end if;
    delete from penstock.quiet where partition_id in (select id from penstock.partition where queue_id = p_queue);
    perform penstock.wake(p_queue);
    return true;
end $$;
