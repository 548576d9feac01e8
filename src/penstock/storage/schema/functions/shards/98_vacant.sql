-- What is left on a shard that is being drained, and its end.

-- What is left on this shard, by queue and kind.
create or replace function @schema@.left_on_shard() returns table (queue text, kind text, n bigint)
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

-- Whether nothing is left on this shard. The same as left_on_shard, without counting.
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

-- From now on nobody writes jobs to this shard, nor brings any; false where somebody is just doing so. Only where it is
-- being drained and has no partition in use. Whoever goes by a map of long ago is refused (PS007). Locks: the tables of
-- jobs and arrivals against writers, for a moment.
create or replace function @schema@.end_writes() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.partition where state = 'current' and shard = @schema@.here())
       or not exists (select from @schema@.shard where number = @schema@.here() and state in ('draining', 'drained')) then
        perform @schema@.refuse('shard', 'this shard is in use');
    end if;
    if not exists (select from pg_trigger where tgname = 'no_writes_any_more' and tgrelid = '@schema@.job'::regclass) then
        perform set_config('lock_timeout', '100ms', true);
        create trigger no_writes_any_more before insert on @schema@.arrival for each statement execute function @schema@.refuse_writes();
        create trigger no_writes_any_more before insert on @schema@.job for each statement execute function @schema@.refuse_writes();
    end if;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- What loads came to, for the shard that leads next. Nobody decides about a load here before this transaction ends.
create or replace function @schema@.loads_decided() returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtext('@schema@.loads'));
    return json_build_object(
        'loads', (select coalesce(json_agg(l), '[]') from @schema@.load as l),
        'batches', (select coalesce(json_agg(b), '[]') from @schema@.load_batch as b),
        'shares', (select coalesce(json_agg(p), '[]') from @schema@.load_share as p),
        'aborts', (select coalesce(json_agg(a), '[]') from @schema@.load_abort as a));
end $$;

-- Takes over what another shard decided about loads, once: what a batch came to there is added to what it came to here.
create or replace function @schema@.take_loads(p_given json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into @schema@.load (name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at)
    select name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at
      from json_populate_recordset(null::@schema@.load, p_given -> 'loads')
    on conflict (name) do nothing;
    insert into @schema@.load_batch as b (load_id, batch, rows, duplicates, bad_rows, published_at, attempt)
    select n.id, g.batch, g.rows, g.duplicates, g.bad_rows, g.published_at, g.attempt
      from json_populate_recordset(null::@schema@.load_batch, p_given -> 'batches') as g
      join json_populate_recordset(null::@schema@.load, p_given -> 'loads') as l on l.id = g.load_id
      join @schema@.load as n on n.name = l.name
     where g.attempt is not null
    on conflict (load_id, batch) do update
       set rows = b.rows + excluded.rows, duplicates = b.duplicates + excluded.duplicates,
           bad_rows = b.bad_rows + excluded.bad_rows, published_at = excluded.published_at, attempt = excluded.attempt
     where b.attempt is null;
    insert into @schema@.load_share (load_id, batch, shard, attempt, rows, duplicates, published_at)
    select n.id, g.batch, g.shard, g.attempt, g.rows, g.duplicates, g.published_at
      from json_populate_recordset(null::@schema@.load_share, p_given -> 'shares') as g
      join json_populate_recordset(null::@schema@.load, p_given -> 'loads') as l on l.id = g.load_id
      join @schema@.load as n on n.name = l.name
     -- What was published here is in the batch itself.
     where g.shard <> @schema@.here()
    on conflict do nothing;
    insert into @schema@.load_abort (attempt, at)
    select attempt, at from json_populate_recordset(null::@schema@.load_abort, p_given -> 'aborts')
    on conflict do nothing;
end $$;
