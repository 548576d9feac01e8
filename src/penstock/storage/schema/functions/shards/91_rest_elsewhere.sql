-- What is left of earlier maps on other shards, for all that is known here.

-- What other shards told last of an earlier map: partitions with anything left, keys that are waited for. Of a shard that
-- has told nothing everything is left; of one that is drained nothing.
create or replace function @schema@.rest_elsewhere(p_map @schema@.queue_map, out open_ids int[], out held_keys bytea[])
language sql stable
begin atomic
    select array(select unnest(r.open_ids) from @schema@.map_elsewhere as r
                  where r.queue_id = p_map.queue_id and r.epoch = p_map.epoch and r.shard <> all (@schema@.drained_shards())
                 union
                 select p.id from @schema@.partition as p
                  where p.id = any (p_map.partition_ids) and p.shard <> @schema@.here()
                    and p.shard <> all (@schema@.drained_shards())
                    and not exists (select from @schema@.map_elsewhere as r
                                     where r.queue_id = p_map.queue_id and r.epoch = p_map.epoch and r.shard = p.shard)),
           array(select unnest(r.held_keys) from @schema@.map_elsewhere as r
                  where r.queue_id = p_map.queue_id and r.epoch = p_map.epoch and r.shard <> all (@schema@.drained_shards()));
end;

-- Forgets jobs of map_guest that their keys do not wait for any more. In one snapshot: a job is found in one table.
create or replace function @schema@.forget_guests() returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    delete from @schema@.map_guest as g
     where not exists (
           select from @schema@.ready as r
            where r.range = g.job_id / 1024 and @schema@.has_member(r.low, r.high, r.members, (g.job_id % 1024)::int)
           union all
           select from @schema@.lease as l
            where l.range = g.job_id / 1024 and @schema@.has_member(l.low, l.high, l.members, (g.job_id % 1024)::int)
           union all
           select from @schema@.scheduled as s
            where s.range = g.job_id / 1024 and s.pos is not null
              and @schema@.has_member(s.low, s.high, s.members, (g.job_id % 1024)::int)
           union all
           select from @schema@.halted as h where h.queue_id = g.queue_id and h.key = g.key and h.job_id = g.job_id)
$$;
