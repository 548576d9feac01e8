-- On which shard a partition lives.

-- The shard for a further partition of a queue: of those in use, without those to avoid if there are others, the one that
-- has the fewest of the partitions given, in turns where several have.
create or replace function @schema@.shard_for(p_queue int, p_number int, p_avoid int[] default '{}', p_ids int[] default '{}')
returns smallint
language sql stable
begin atomic
    select coalesce((
        select s.number
          from (select number, row_number() over (order by number) - 1 as rank, count(*) over () as of
                  from @schema@.shard as a
                 where state = 'active'
                   and (number <> all (p_avoid) or not exists (
                       select from @schema@.shard as o where o.state = 'active' and o.number <> all (p_avoid)))) as s
         order by (select count(*) from @schema@.partition as p where p.id = any (p_ids) and p.shard = s.number),
                  (s.rank - (p_number + p_queue - 1) % s.of + s.of) % s.of limit 1), @schema@.here());
end;

-- The last place of a number in a queue that may be used; null where there is none.
create or replace function @schema@.former_place(p_queue int, p_number int) returns int
language sql stable
begin atomic
    select p.id from @schema@.partition as p
     where p.queue_id = p_queue and p.number = p_number
       and not exists (select from @schema@.shard as s where s.number = p.shard and s.state <> 'active')
     order by p.left_at desc nulls last, p.id desc limit 1;
end;

-- Moves partitions of a queue to other shards, each by its number: another partition of the same number and name takes
-- its index in a new map. Whether any was not there already. Locks: the catalogue, the map's row, the queue's.
create or replace function @schema@.move_partitions(p_name text, p_numbers int[], p_shards int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   @schema@.queue;
    v_version bigint := @schema@.next_version();
    v_before  int[];
    v_ids     int[];
begin
    v_queue := (select q from @schema@.queue as q where q.name = p_name);
    select m.partition_ids into v_before
      from @schema@.queue_map as m where m.queue_id = v_queue.id and m.epoch = v_queue.epoch;
    insert into @schema@.partition (queue_id, number, name, shard)
    select v_queue.id, p.number, p.name, g.shard
      from unnest(p_numbers, p_shards) as g(number, shard)
      join @schema@.partition as p on p.id = v_before[1 + g.number] and p.shard <> g.shard
    on conflict (queue_id, number, shard) do nothing;
    v_ids := array(
        select coalesce(p.id, b.id)
          from unnest(v_before) with ordinality as b(id, ordinal)
          left join unnest(p_numbers, p_shards) as g(number, shard) on g.number = b.ordinal - 1
          left join @schema@.partition as p on p.queue_id = v_queue.id and p.number = g.number and p.shard = g.shard
         order by b.ordinal);
    if v_ids = v_before then
        return false;
    end if;
    perform @schema@.change_map(v_queue, v_version, v_ids, true);
    return true;
end $$;
