-- What is left on a shard that is being drained.

-- What is left on this shard, by queue and kind.
create or replace function @schema@.rest_on_shard() returns table (queue text, kind text, n bigint)
language sql stable
begin atomic
    with counted as (
        select queue_id, 'partitions' as kind, count(*) as n
          from @schema@.partition where state = 'current' and shard = @schema@.here() group by 1
        union all
        select p.queue_id, o.kind, sum(o.n) from (
            select partition_id, case when reason is null then 'ready' else 'set aside' end as kind,
                   sum(@schema@.members_count(low, high, members)) as n from @schema@.ready group by 1, 2
            union all
            select partition_id, 'running', sum(@schema@.members_count(low, high, members)) from @schema@.lease group by 1
            union all
            select partition_id, 'scheduled', sum(@schema@.members_count(low, high, members)) from @schema@.scheduled group by 1
            union all
            select partition_id, 'blocked', count(*) from @schema@.blocked group by 1
            union all
            select partition_id, 'failed', count(*) from @schema@.dead group by 1
            union all
            select partition_id, 'on their way', count(*) from @schema@.outbox group by 1
            union all
            select partition_id, 'staged', count(*) from @schema@.load_range where load_id is null group by 1) as o
          join @schema@.partition as p on p.id = o.partition_id group by 1, 2
        union all
        select queue_id, 'halted keys', count(*) from @schema@.halted group by 1
        union all
        select queue_id, 'idempotency keys', count(*) from @schema@.dedup group by 1
        union all
        select queue_id, 'crons', count(*) from @schema@.cron group by 1
        union all
        select queue_id, 'loads', count(*) from @schema@.prepared_stages group by 1
        union all
        select l.queue_id, 'loads', count(*) from @schema@.load_share as p join @schema@.load as l on l.id = p.load_id
         where p.published_at is null group by 1
        union all
        select m.queue_id, 'producers', count(*)
          from @schema@.map_here as h join @schema@.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
          join @schema@.queue as q on q.id = m.queue_id
         where q.is_owned and h.state = 'in_use' and exists (
               select from @schema@.partition as p where p.id = any (m.partition_ids) and p.shard = @schema@.here()) group by 1
    )
    select q.name, c.kind, sum(c.n)::bigint from counted as c join @schema@.queue as q on q.id = c.queue_id
     group by 1, 2 order by 1, 2;
end;

-- Whether nothing is left on this shard. The same as rest_on_shard, without counting.
create or replace function @schema@.is_vacant() returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select not exists (select from @schema@.ready) and not exists (select from @schema@.lease)
       and not exists (select from @schema@.scheduled) and not exists (select from @schema@.blocked)
       and not exists (select from @schema@.dead) and not exists (select from @schema@.halted)
       and not exists (select from @schema@.outbox) and not exists (select from @schema@.dedup)
       and not exists (select from @schema@.cron) and not exists (select from @schema@.prepared_stages)
       and not exists (select from @schema@.load_range where load_id is null)
       and not exists (select from @schema@.load_share where published_at is null)
       and not exists (select from @schema@.partition where state = 'current' and shard = @schema@.here())
       and not exists (select from @schema@.queue_map where state = 'announced')
       and not exists (select from @schema@.map_here where state = 'in_use')
$$;
