-- A queue gets another key map, and the one before is closed.

-- Gives a queue a map, in a change of the catalogue that the caller began (@schema@.next_version). With a new epoch the
-- map before it is replaced, or withdrawn if it was only announced. Its row is changed first: a producer above READ
-- COMMITTED has it locked, and finds by it that its snapshot is old. Partitions are added, never taken away: those not
-- in the map are served until they are empty. Locks: the map's row, then the queue's.
create or replace function @schema@.set_map(
    p_queue int, p_version bigint, p_ids int[], p_homes smallint[], p_is_new boolean, p_state text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch int;
begin
    select epoch into v_epoch from @schema@.queue where id = p_queue;
    update @schema@.queue_map as m
       set partition_ids = case when p_is_new then m.partition_ids else p_ids end,
           state = case when not p_is_new then m.state when m.state = 'announced' then 'withdrawn' else 'replaced' end,
           is_carried = m.is_carried and not (p_is_new and exists (select from @schema@.shard offset 1))
     where m.queue_id = p_queue and m.epoch = v_epoch;
    if p_is_new or not found then
        insert into @schema@.map_here (queue_id, epoch) select p_queue, v_epoch where p_is_new;
        v_epoch := v_epoch + p_is_new::int;
        insert into @schema@.queue_map (queue_id, epoch, partition_ids, homes, state)
        values (p_queue, v_epoch, p_ids, p_homes, p_state);
    end if;
    update @schema@.queue
       set partitions = cardinality(p_ids), epoch = v_epoch, homes = p_homes, version = p_version
     where id = p_queue;
    update @schema@.partition set state = 'left', left_at = p_version
     where queue_id = p_queue and id <> all (p_ids) and state = 'current';
    update @schema@.partition set state = 'current', left_at = null, shut_by = null
     where queue_id = p_queue and id = any (p_ids) and state <> 'current';
    perform @schema@.wake(p_queue);
end $$;

-- The homes of idempotency keys by a further map: a shard that has no partition in it is replaced by one at the same
-- index, so that the keys of the others stay where they are.
create or replace function @schema@.homes_by(p_homes smallint[], p_ids int[]) returns smallint[]
language sql stable
begin atomic
    select array(select case when h.shard = any (s.shards) then h.shard
                             else s.shards[1 + (h.ordinal - 1) % cardinality(s.shards)] end
                   from unnest(p_homes) with ordinality as h(shard, ordinal) order by h.ordinal)
      from (select array_agg(distinct shard order by shard) as shards from @schema@.partition where id = any (p_ids)) as s;
end;

-- Begins to give a queue other partitions, in a change of the catalogue that the caller began. A queue without an owner
-- has no use for a further map unless a partition or an idempotency key moves. Where the map before has partitions on other
-- shards, nobody may write by the new one yet. An earlier change that is announced is an error (55006): it is through soon.
-- Where a partition would come back to a place that it has not quite left, the change is refused: that may take long.
create or replace function @schema@.change_map(p_queue @schema@.queue, p_version bigint, p_ids int[], p_is_move boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_homes smallint[] := @schema@.homes_by(p_queue.homes, p_ids);
    v_early record;
begin
    if exists (select from @schema@.queue_map where queue_id = p_queue.id and state = 'announced') then
        raise exception using errcode = '55006',
            message = format('another change of the partitions of queue %s is under way', quote_literal(p_queue.name));
    end if;
    select p.number, p.shard into v_early from @schema@.partition as p
     where p.id = any (p_ids) and p.state <> 'current' and not @schema@.may_return(p) order by p.number limit 1;
    if found then
        perform @schema@.refuse(case when p_is_move then 'shard' else 'partitions' end, format(
            'partition %s of queue %s has left shard %s not long ago, and what it left there is not worked off yet; where a queue '
            'has a limit or a rate, only one place of a partition starts jobs: call again when workers have ended what is ready '
            'or runs there',
            v_early.number, quote_literal(p_queue.name), v_early.shard));
    end if;
    if not (p_is_move or p_queue.is_owned or v_homes <> p_queue.homes) then
        perform @schema@.set_map(p_queue.id, p_version, p_ids, v_homes, false, 'open');
        return;
    end if;
    perform @schema@.set_map(p_queue.id, p_version, p_ids, v_homes, true, case when exists (
        select from @schema@.queue_map as m join @schema@.partition as p on p.id = any (m.partition_ids)
         where m.queue_id = p_queue.id and m.epoch = p_queue.epoch and p.shard <> @schema@.here())
        then 'announced' else 'open' end);
end $$;

-- Calls maps closed that are not their queue's any more and that no producer has locked, nor a load that is being
-- decided about on another shard. Only tries: whoever waited for the producers would stand in the way of all that come
-- after. Not in the transaction that set the new map: it must be committed before the old one is found free. Locks:
-- rows of old maps, skipping those that are locked. Returns how many it closed.
create or replace function @schema@.close_maps() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_map   record;
    v_count int := 0;
begin
    for v_map in
        select m.queue_id, m.epoch
          from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
         where h.state = 'in_use' order by m.queue_id, m.epoch for update of m skip locked
    loop
        update @schema@.map_here as m set state = 'closed'
         where m.queue_id = v_map.queue_id and m.epoch = v_map.epoch and m.state = 'in_use'
           and not exists (select from @schema@.prepared_stages as h where h.queue_id = m.queue_id and h.epoch = m.epoch);
        v_count := v_count + found::int;
    end loop;
    return v_count;
end $$;
