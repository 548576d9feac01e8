-- What is left of a map that was closed.

-- Whether anything that a map sent to a partition is ready or runs there. Index: ready_of_epoch.
create or replace function @schema@.has_open_jobs(p_partition int, p_epoch int) returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select exists (select from @schema@.ready where partition_id = p_partition and epoch = p_epoch)
        or exists (select from @schema@.lease where partition_id = p_partition and epoch = p_epoch)
$$;

-- What is left of an earlier map on this shard: the partitions where anything of it is ready or runs (all of them,
-- while producers have it locked), unless what is left there is listed by key; and the keys that are listed, or held by
-- a retry or a person's decision, or of jobs that leave this shard or came from one that is being drained. Once the map
-- is closed both only become less, so that an older answer is never too little: a job of it can only stay, end, wait
-- for its retry or be halted, each by the map it has. Where one comes here from a shard that is being drained, it does
-- not leave that one before everybody was told of it from here (see carrying). One look: in one snapshot with whatever
-- else the statement or its transaction reads. Indexes: ready_of_epoch, scheduled_holding.
create or replace function @schema@.rest_of_map(p_queue int, p_epoch int, out open_ids int[], out held_keys bytea[])
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select case when not exists (select from @schema@.map_here as h
                                  where h.queue_id = p_queue and h.epoch = p_epoch and h.state = 'closed')
                then array(select p.id from @schema@.partition as p
                            where p.id = any (m.partition_ids) and p.shard = @schema@.here())
                else array(select p.id from @schema@.partition as p
                            where p.queue_id = p_queue and @schema@.has_open_jobs(p.id, p_epoch)
                              and not exists (select from @schema@.map_rest as r
                                               where r.queue_id = p_queue and r.epoch = p_epoch and r.partition_id = p.id
                                                 and r.keys is not null)) end,
           array(select j.key from @schema@.partition as p
                   join @schema@.scheduled as s on s.partition_id = p.id and s.epoch = p_epoch and s.pos is not null
                  cross join lateral unnest(@schema@.positions(s.low, s.high, s.members)) as b
                  cross join lateral (select key from @schema@.job_stored where id = s.range * 1024 + b limit 1) as j
                  where p.queue_id = p_queue and j.key is not null
                 union
                 select h.key from @schema@.halted as h where h.queue_id = p_queue and h.epoch = p_epoch
                 union
                 select unnest(r.keys) from @schema@.map_rest as r
                  where r.queue_id = p_queue and r.epoch = p_epoch and @schema@.has_open_jobs(r.partition_id, p_epoch)
                 union
                 select g.key from @schema@.map_guest as g where g.queue_id = p_queue and g.epoch = p_epoch
                 union
                 select j.key from @schema@.partition as p
                   join @schema@.outbox as o on o.partition_id = p.id and o.epoch = p_epoch
                  cross join lateral (select key from @schema@.job_stored where id = o.job_id limit 1) as j
                  where p.queue_id = p_queue and j.key is not null)
      from @schema@.queue_map as m where m.queue_id = p_queue and m.epoch = p_epoch
$$;

-- Calls maps drained by which nothing is left that is ready, runs, or holds its key, on any shard; also not a halted
-- key, whose dead letter a retry brings back. The maps are locked by one statement and looked at by the next. It is a
-- change of the catalogue: for the lead. Locks: the catalogue where it seems that one is drained, then rows of closed
-- maps, skipping those that are locked. Returns how many it drained.
create or replace function @schema@.drain_maps() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queues  int[];
    v_epochs  int[];
    v_version bigint;
    v_count   int;
begin
    select array_agg(m.queue_id), array_agg(m.epoch) into v_queues, v_epochs
      from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
     where m.state = 'replaced' and h.state = 'closed' and not @schema@.has_rest(m);
    if v_queues is null or not @schema@.is_lead() then
        return 0;
    end if;
    v_version := @schema@.next_version();
    select array_agg(queue_id), array_agg(epoch) into v_queues, v_epochs
      from (select queue_id, epoch from @schema@.queue_map
             where (queue_id, epoch) in (select g.queue, g.epoch from unnest(v_queues, v_epochs) as g(queue, epoch)) and state = 'replaced'
             order by queue_id, epoch for update skip locked) as m;
    with drained as (
        update @schema@.queue_map as m set state = 'drained'
         where (m.queue_id, m.epoch) in (select g.queue, g.epoch from unnest(v_queues, v_epochs) as g(queue, epoch))
           and m.state = 'replaced' and not @schema@.has_rest(m)
        returning m.queue_id, m.epoch
    ), told as (
        update @schema@.queue as q set version = v_version from (select distinct queue_id from drained) as d where q.id = d.queue_id
    )
    select count(@schema@.wake(queue_id)) into v_count from drained;
    perform @schema@.forget_drained();
    return v_count;
end $$;

-- Forgets what was known of what is left of drained maps.
create or replace function @schema@.forget_drained() returns void
language sql
begin atomic
    delete from @schema@.map_rest as r using @schema@.queue_map as m
     where m.queue_id = r.queue_id and m.epoch = r.epoch and m.state = 'drained';
    delete from @schema@.map_elsewhere as r using @schema@.queue_map as m
     where m.queue_id = r.queue_id and m.epoch = r.epoch and m.state = 'drained';
end;

-- Whether anything is left of a map that is closed, here or, for all that is known, elsewhere.
create or replace function @schema@.has_rest(p_map @schema@.queue_map) returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select exists (select from @schema@.partition as p
                    where p.queue_id = p_map.queue_id
                      and (@schema@.has_open_jobs(p.id, p_map.epoch)
                           or exists (select from @schema@.scheduled as s
                                       where s.partition_id = p.id and s.epoch = p_map.epoch and s.pos is not null)))
        or exists (select from @schema@.halted as h where h.queue_id = p_map.queue_id and h.epoch = p_map.epoch)
        or exists (select from @schema@.map_guest as g where g.queue_id = p_map.queue_id and g.epoch = p_map.epoch)
        or exists (select from @schema@.partition as p
                     join @schema@.outbox as o on o.partition_id = p.id and o.epoch = p_map.epoch
                    where p.queue_id = p_map.queue_id)
        or exists (select from @schema@.rest_elsewhere(p_map) as e where e.open_ids <> '{}' or e.held_keys <> '{}')
$$;

-- What jobs of later maps wait for: the queue's newest map, and each that was replaced and is not drained; of these what is
-- left on this shard, and what the others told last. One look. Owners ask often, and mostly there is one map.
create or replace function @schema@.undrained_maps(p_queue int)
returns table (epoch int, partition_ids int[], open_ids int[], held_keys bytea[])
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select m.epoch, m.partition_ids, '{}'::int[], '{}'::bytea[]
      from @schema@.queue as q join @schema@.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch where q.id = p_queue;
    if exists (select from @schema@.queue_map as m where m.queue_id = p_queue and m.state = 'replaced') then
        return query
        select m.epoch, m.partition_ids, r.open_ids || e.open_ids, r.held_keys || e.held_keys
          from @schema@.queue_map as m
         cross join lateral @schema@.rest_of_map(p_queue, m.epoch) as r
         cross join lateral @schema@.rest_elsewhere(m) as e
         where m.queue_id = p_queue and m.state = 'replaced';
    end if;
end $$;
