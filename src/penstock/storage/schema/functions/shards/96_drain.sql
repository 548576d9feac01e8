-- Draining a shard: everything leaves it, while all others run and it is used itself. What is left in the earlier place of
-- a partition that moved leaves in the same way, where its queue has a limit or a rate (see @schema@.partition).
--
--   begin    nothing is placed there any more (@schema@.begin_draining)
--   vacate   its current partitions are taken over by others, queue by queue: a new map of each (@schema@.vacate_queue)
--   work     what is ready or runs there is worked off where it is
--   send     what cannot end there leaves through the outbox, as it is: see @schema@.send_off
--   seal     nobody writes to it any more, whatever map they believe in (@schema@.seal_shard)
--   end      it is drained when nothing is left: another shard leads, where it did
--
-- Each can be done again, and by several at once.

-- Nothing is placed on a shard from now on; false where that was so. Locks: the catalogue.
create or replace function @schema@.begin_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.next_version();
    if exists (select from @schema@.shard where number = p_number and state = 'joining') then
        perform @schema@.refuse('shard', format('shard %s is not added yet: end that with `penstock shards add` first', p_number));
    elsif not exists (select from @schema@.shard where number <> p_number and state = 'active') then
        perform @schema@.refuse('shard', format(
            'shard %s is the last one in use, and its partitions have nowhere to go: add another with `penstock shards add` first',
            p_number));
    end if;
    update @schema@.shard set state = 'draining' where number = p_number and state = 'active';
    return found;
end $$;

-- Moves the current partitions of a queue off a shard, to those of the shards in use that have the fewest of them and to
-- which they may come; whether there were any that could. Locks: the catalogue, the map's row, the queue's.
create or replace function @schema@.vacate_queue(p_name text, p_shard int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   int;
    v_number  int;
    v_target  int;
    v_numbers int[] := '{}';
    v_shards  int[] := '{}';
begin
    -- Whoever does the same comes before or after.
    perform from @schema@.catalogue for no key update;
    select id into v_queue from @schema@.queue where name = p_name;
    for v_number in
        select number from @schema@.partition where queue_id = v_queue and state = 'current' and shard = p_shard order by number
    loop
        select s.number into v_target
          from @schema@.shard as s
         cross join lateral (
               select count(*) filter (where p.queue_id = v_queue) as of_queue, count(*) as of_all
                 from @schema@.partition as p where p.shard = s.number and p.state = 'current') as has
         cross join lateral (select count(*) as n from unnest(v_shards) as g(number) where g.number = s.number) as given
         where s.state = 'active' and not exists (
               select from @schema@.partition as p
                where p.queue_id = v_queue and p.number = v_number and p.shard = s.number and not @schema@.may_return(p))
         order by has.of_queue + given.n, has.of_all + given.n, s.number limit 1;
        if v_target is not null then
            v_numbers := v_numbers || v_number;
            v_shards := v_shards || v_target;
        end if;
    end loop;
    return v_numbers <> '{}' and @schema@.move_partitions(p_name, v_numbers, v_shards);
end $$;

-- The partitions of this shard that are being left: those of queues that have none here by their map of now, if that is
-- open, where the shard is being drained; and earlier places of partitions that moved, where only one may start jobs,
-- also of those that a resize took away since, and those that are shut, whatever rules their queue has by now.
-- by_ids: that map, or of a partition in which nothing starts any more the one that was the queue's when it was shut,
-- so that the jobs of a key all take the same way; unless a shard of it is drained since.
create or replace function @schema@.partitions_left()
returns table (id int, queue_id int, number int, is_owned boolean, is_paused boolean, is_draining boolean,
               has_moved boolean, shut_by int, by_ids int[])
language sql stable
begin atomic
    select p.id, q.id, p.number, q.is_owned, q.is_paused, l.is_draining, l.has_moved, p.shut_by, m.partition_ids
      from @schema@.partition as p
      join @schema@.queue as q on q.id = p.queue_id and not exists (
           select from @schema@.queue_map as a where a.queue_id = q.id and a.state = 'announced')
     cross join lateral (
           select exists (select from @schema@.shard as s where s.number = p.shard and s.state = 'draining')
                  and not exists (select from @schema@.partition as c
                                   where c.queue_id = q.id and c.state = 'current' and c.shard = p.shard) as is_draining,
                  p.state = 'shut'
                  or (q.running_limit is not null or q.rate is not null)
                     and exists (select from @schema@.partition as c
                                  where c.queue_id = q.id and c.number = p.number and c.id <> p.id
                                    and (c.state = 'current' or c.left_at > coalesce(p.left_at, 0))) as has_moved) as l
      join @schema@.queue_map as m on m.queue_id = q.id and m.epoch = (
           select o.epoch from @schema@.queue_map as o
            where o.queue_id = q.id and o.epoch in (p.shut_by, q.epoch)
              and not exists (select from @schema@.partition as t
                               where t.id = any (o.partition_ids) and t.shard = any (@schema@.drained_shards()))
            order by o.epoch limit 1)
     where p.shard = @schema@.here() and p.state <> 'current' and (l.is_draining or l.has_moved);
end;

-- The shard a job goes to by a map: its key's where that decides, else that of its partition's number.
create or replace function @schema@.shard_by(p_ids int[], p_key bytea, p_number int) returns smallint
language sql stable
begin atomic
    select shard from @schema@.partition
     where id = p_ids[1 + coalesce(@schema@.partition_of(p_key, cardinality(p_ids)), p_number % cardinality(p_ids))];
end;

-- On a queue with an owner what is left of a key leaves whole and in its order: first nothing of its partition may start
-- any more. That is so when nothing runs there, nobody writes by an earlier map, and the rest can go no further: where the
-- shard is being drained the queue is paused or nobody here serves it, or the partition's owner found nothing that could
-- start. Without an owner nothing is left that anybody could start; what comes later by an old map is sent after the
-- rest. A place that waits for an earlier one is not shut before it; one that a move which was taken back was to lead to
-- (left_at is null) starts nothing and is shut as it is. Locks: partitions' rows.
create or replace function @schema@.shut_partitions_left() returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_part  record;
    v_count int := 0;
begin
    for v_part in
        select l.id, l.is_owned, l.is_draining, l.has_moved from @schema@.partitions_left() as l
         where (l.is_owned or l.has_moved) and l.shut_by is null
           and not (l.is_owned and exists (select from @schema@.map_here as h where h.queue_id = l.queue_id and h.state = 'held'))
         order by l.id
    loop
        perform from @schema@.partition where id = v_part.id for update;
        -- Looked at by a statement after the lock: whoever starts something holds the row.
        update @schema@.partition as p
           set state = 'shut', shut_by = q.epoch, owner_id = null, owner_epoch = p.owner_epoch + 1
          from @schema@.queue as q
         where p.id = v_part.id and q.id = p.queue_id and p.state in ('left', 'unused')
           and (p.left_at is null or @schema@.waits_for(p) is null)
           and not exists (select from @schema@.lease as l where l.partition_id = p.id)
           and (v_part.has_moved and p.left_at is null
                or not exists (select from @schema@.ready as r where r.partition_id = p.id and not r.is_parked)
                or v_part.is_draining and v_part.is_owned and (
                   q.is_paused or not exists (select from @schema@.worker_task as t where t.queue_id = q.id))
                or v_part.is_owned and exists (
                   select from @schema@.quiet as n
                    where n.partition_id = p.id and n.server = @schema@.this_server()
                      and exists (select from @schema@.worker as w where w.id = p.owner_id)
                      and not exists (select from @schema@.ready as r
                                       where r.partition_id = p.id and not pg_visible_in_snapshot(r.changed, n.as_of))));
        v_count := v_count + found::int;
    end loop;
    return v_count;
end $$;

-- A shard is drained from now on; false where it was not being drained. One that leads says so of itself, and has handed
-- over what it decided about loads. Locks: the catalogue.
create or replace function @schema@.end_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_number = @schema@.here() then
        delete from @schema@.load_part;
        delete from @schema@.load_batch where attempt is not null;
        delete from @schema@.load_abort;
    end if;
    perform @schema@.next_version();
    update @schema@.shard set state = 'drained' where number = p_number and state = 'draining';
    if not found then
        return false;
    end if;
    perform @schema@.note_drained();
    return true;
end $$;
