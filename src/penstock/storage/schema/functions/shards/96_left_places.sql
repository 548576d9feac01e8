-- Partitions that this shard is left by: it is being drained, or they moved and only one of their places may start jobs.

-- The partitions of this shard that are being left: those of queues that have none here by their map of now, if that is
-- open, where the shard is being drained; and earlier places of partitions that moved, where only one may start jobs,
-- also of those that a resize took away since, and those that are shut, whatever rules their queue has by now.
-- by_ids: that map, or of a partition in which nothing starts any more the one that was the queue's when it was shut,
-- so that the jobs of a key all take the same way; unless a shard of it is drained since. What a deleted queue has here is
-- ended here.
create or replace function @schema@.partitions_left()
returns table (id int, queue_id int, number int, is_owned boolean, is_paused boolean, is_draining boolean,
               has_moved boolean, shut_by int, by_ids int[])
language sql stable
begin atomic
    select p.id, q.id, p.number, q.is_owned, q.is_paused, l.is_draining, l.has_moved, p.shut_by, m.partition_ids
      from @schema@.partition as p
      join @schema@.queue as q on q.id = p.queue_id and q.deleted_at is null and not exists (
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
-- rest. One that was left before its queue had a limit is shut with what is ready there. A place that waits for an earlier one is not shut before it; one that a move which was taken back was to lead to
-- (left_at is null) starts nothing and is shut as it is. Locks: partitions' rows.
create or replace function @schema@.shut_partitions_left() returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_partition record;
    v_count     int := 0;
begin
    for v_partition in
        select l.id, l.is_owned, l.is_draining, l.has_moved from @schema@.partitions_left() as l
         where (l.is_owned or l.has_moved) and l.shut_by is null
           and not (l.is_owned and exists (select from @schema@.map_here as h where h.queue_id = l.queue_id and h.state = 'in_use'))
         order by l.id
    loop
        perform from @schema@.partition where id = v_partition.id for update;
        -- Looked at by a statement after the lock: whoever starts something holds the row.
        update @schema@.partition as p
           set state = 'shut', shut_by = q.epoch, owner_id = null, owner_epoch = p.owner_epoch + 1
          from @schema@.queue as q
         where p.id = v_partition.id and q.id = p.queue_id and p.state in ('left', 'unused')
           and (p.left_at is null or @schema@.waits_for(p) is null)
           and not exists (select from @schema@.lease as l where l.partition_id = p.id)
           and (v_partition.has_moved and p.left_at is null or @schema@.left_unlimited(p)
                or not exists (select from @schema@.ready as r where r.partition_id = p.id and not r.is_parked)
                or v_partition.is_draining and v_partition.is_owned and (
                   q.is_paused or not exists (select from @schema@.worker_task as t where t.queue_id = q.id))
                or v_partition.is_owned and exists (
                   select from @schema@.idle_partition as n
                    where n.partition_id = p.id and n.server = @schema@.this_server()
                      and exists (select from @schema@.worker as w where w.id = p.owner_id)
                      and not exists (select from @schema@.ready as r
                                       where r.partition_id = p.id and not pg_visible_in_snapshot(r.changed, n.as_of))));
        v_count := v_count + found::int;
    end loop;
    return v_count;
end $$;
