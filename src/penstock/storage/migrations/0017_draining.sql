-- breaking: no
-- Draining a shard: everything leaves it, while all others run and it is used itself. What is left in the earlier place of
-- a partition that moved leaves in the same way, where its queue has a limit or a rate (see penstock.shut_elsewhere).
--
--   begin    nothing is placed there any more (penstock.begin_draining)
--   vacate   its current partitions are taken over by others, queue by queue: a new map of each (penstock.vacate_queue)
--   work     what is ready or runs there is worked off where it is
--   send     what cannot end there leaves through the outbox, as it is: see penstock.send_off
--   seal     nobody writes to it any more, whatever map they believe in (penstock.seal_shard)
--   end      it is drained when nothing is left: another shard leads, where it did
--
-- Each can be done again, and by several at once.

-- Nothing is placed on a shard from now on; false where that was so. Locks: the catalogue.
create function penstock.begin_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.next_version();
    if exists (select from penstock.shard where number = p_number and state = 'joining') then
        perform penstock.refuse('shard', format('shard %s is not added yet: end that with `penstock shards add` first', p_number));
    elsif not exists (select from penstock.shard where number <> p_number and state = 'active') then
        perform penstock.refuse('shard', format(
            'shard %s is the last one in use, and its partitions have nowhere to go: add another with `penstock shards add` first',
            p_number));
    end if;
    update penstock.shard set state = 'draining' where number = p_number and state = 'active';
    return found;
end $$;

-- Moves the current partitions of a queue off a shard, to those of the shards in use that have the fewest of them and to
-- which they may come; whether there were any that could. Locks: the catalogue, the map's row, the queue's.
create function penstock.vacate_queue(p_name text, p_shard int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   int;
    v_number  int;
    v_target  int;
    v_numbers int[] := '{}';
    v_shards  int[] := '{}';
begin
    -- Whoever does the same comes before or after.
    perform from penstock.catalogue for no key update;
    select id into v_queue from penstock.queue where name = p_name;
    for v_number in
        select number from penstock.partition where queue_id = v_queue and is_current and shard = p_shard order by number
    loop
        select s.number into v_target
          from penstock.shard as s
         cross join lateral (
               select count(*) filter (where p.queue_id = v_queue) as of_queue, count(*) as of_all
                 from penstock.partition as p where p.shard = s.number and p.is_current) as has
         cross join lateral (select count(*) as n from unnest(v_shards) as g(number) where g.number = s.number) as given
         where s.state = 'active' and not exists (
               select from penstock.partition as p
                where p.queue_id = v_queue and p.number = v_number and p.shard = s.number and not penstock.may_return(p))
         order by has.of_queue + given.n, has.of_all + given.n, s.number limit 1;
        if v_target is not null then
            v_numbers := v_numbers || v_number;
            v_shards := v_shards || v_target;
        end if;
    end loop;
    return v_numbers <> '{}' and penstock.move_partitions(p_name, v_numbers, v_shards);
end $$;

-- The partitions of this shard that are being left: those of queues that have none here by their map of now, if that is
-- open, where the shard is being drained; and earlier places of partitions that moved, where only one may start jobs,
-- also of those that a resize took away since, and those that are shut, whatever rules their queue has by now.
-- by_ids: that map, or of a partition in which nothing starts any more the one that was the queue's when it was shut,
-- so that the jobs of a key all take the same way; unless a shard of it is drained since.
create function penstock.partitions_left()
returns table (id int, queue_id int, number int, is_owned boolean, is_paused boolean, is_draining boolean,
               has_moved boolean, shut_by int, by_ids int[])
language sql stable
begin atomic
    select p.id, q.id, p.number, q.is_owned, q.is_paused, l.is_draining, l.has_moved, p.shut_by, m.partition_ids
      from penstock.partition as p
      join penstock.queue as q on q.id = p.queue_id and q.is_open
     cross join lateral (
           select exists (select from penstock.shard as s where s.number = p.shard and s.state = 'draining')
                  and not exists (select from penstock.partition as c
                                   where c.queue_id = q.id and c.is_current and c.shard = p.shard) as is_draining,
                  p.shut_by is not null
                  or (q.running_limit is not null or q.rate is not null)
                     and exists (select from penstock.partition as c
                                  where c.queue_id = q.id and c.number = p.number and c.id <> p.id
                                    and (c.is_current or c.left_at > coalesce(p.left_at, 0))) as has_moved) as l
      join penstock.queue_map as m on m.queue_id = q.id and m.epoch = (
           select o.epoch from penstock.queue_map as o
            where o.queue_id = q.id and o.epoch in (p.shut_by, q.epoch)
              and not exists (select from penstock.partition as t
                               where t.id = any (o.partition_ids) and t.shard = any (penstock.drained_shards()))
            order by o.epoch limit 1)
     where p.shard = penstock.here() and not p.is_current and (l.is_draining or l.has_moved);
end;

-- The shard a job goes to by a map: its key's where that decides, else that of its partition's number.
create function penstock.shard_by(p_ids int[], p_key bytea, p_number int) returns smallint
language sql stable
begin atomic
    select shard from penstock.partition
     where id = p_ids[1 + coalesce(penstock.partition_of(p_key, cardinality(p_ids)), p_number % cardinality(p_ids))];
end;

-- On a queue with an owner what is left of a key leaves whole and in its order: first nothing of its partition may start
-- any more. That is so when nothing runs there, nobody writes by an earlier map, and the rest can go no further: where the
-- shard is being drained the queue is paused or nobody here serves it, or the partition's owner found nothing that could
-- start. Without an owner nothing is left that anybody could start; what comes later by an old map is sent after the
-- rest. A place that waits for an earlier one is not shut before it; one that a move which was taken back was to lead to
-- (left_at is null) starts nothing and is shut as it is. Locks: partitions' rows.
create function penstock.shut_partitions_left() returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_part  record;
    v_count int := 0;
begin
    for v_part in
        select l.* from penstock.partitions_left() as l
         where (l.is_owned or l.has_moved) and l.shut_by is null
           and not (l.is_owned and exists (select from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id
                                            where m.queue_id = l.queue_id and m.epoch < q.epoch and not m.is_closed))
         order by l.id
    loop
        perform from penstock.partition where id = v_part.id for update;
        -- Looked at by a statement after the lock: whoever starts something holds the row.
        update penstock.partition as p
           set shut_by = q.epoch, owner_id = null, owner_epoch = p.owner_epoch + 1
          from penstock.queue as q
         where p.id = v_part.id and q.id = p.queue_id and p.shut_by is null and not p.is_current
           and (p.left_at is null or penstock.waits_for(p) is null)
           and not exists (select from penstock.lease as l where l.partition_id = p.id)
           and (v_part.has_moved and p.left_at is null
                or not exists (select from penstock.ready as r where r.partition_id = p.id and not r.is_parked)
                or v_part.is_draining and v_part.is_owned and (
                   q.is_paused or not exists (select from penstock.worker_task as t where t.queue_id = q.id))
                or v_part.is_owned and exists (
                   select from penstock.quiet as n
                    where n.partition_id = p.id and n.server = penstock.this_server()
                      and exists (select from penstock.worker as w where w.id = p.owner_id)
                      and not exists (select from penstock.ready as r
                                       where r.partition_id = p.id and not pg_visible_in_snapshot(r.changed, n.as_of))));
        v_count := v_count + found::int;
    end loop;
    return v_count;
end $$;

-- Puts what cannot end on this shard into the outbox, as it is, some of each kind; how many jobs. Delays and retries,
-- children, dead letters; of queues without an owner what is paused, or of a task that nobody here knows; and of
-- partitions in which nothing starts any more all that is left, by key in its order: first what holds a key. Stages cannot
-- be published here any more and are dropped. Locks: the rows it takes, skipping those held; but where order counts it
-- waits for them, for a second (55P03).
create function penstock.send_off(p_rows int) returns bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_all   int[];
    v_plain int[];
    v_shut  int[];
    v_rows  tid[];
    v_ids   bigint[];
    v_sent  bigint := 0;
    v_count bigint;
begin
    perform set_config('lock_timeout', '1s', true);
    perform penstock.shut_partitions_left();
    select coalesce(array_agg(id) filter (where is_draining or shut_by is not null), '{}'),
           coalesce(array_agg(id) filter (where is_draining and not is_owned), '{}'),
           coalesce(array_agg(id) filter (where shut_by is not null), '{}')
      into v_all, v_plain, v_shut from penstock.partitions_left();
    if v_all = '{}' then
        return 0;
    end if;

    -- What waits for a time, and of partitions that are shut also what holds its key.
    v_rows := array(select ctid from penstock.scheduled
                     where partition_id = any (v_all) and (pos is null or partition_id = any (v_shut))
                     order by partition_id, range limit p_rows for update skip locked);
    with gone as (
        delete from penstock.scheduled where ctid = any (v_rows) returning *
    ), member as (
        select g.*, l.by_ids, l.number, g.range * 1024 + m.position as job_id, j.key
          from gone as g join penstock.partitions_left() as l on l.id = g.partition_id
         cross join lateral unnest(penstock.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select key from penstock.job_stored where id = g.range * 1024 + m.position and l.is_owned limit 1) as j on true
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select penstock.shard_by(by_ids, key, number), job_id, partition_id, attempt,
               case when pos is not null and key is not null then epoch end,
               json_build_object('state', 'scheduled', 'rescues', rescues, 'pos', pos, 'due_at',
                   case when due_at >= penstock.paused_from() then due_at - (1::bigint << 53) * interval '1 microsecond'
                        else due_at end)
          from member order by due_at, range, job_id
        returning partition_id
    ), counted as (
        insert into penstock.tally (partition_id, scheduled, opened) select partition_id, -count(*), count(*) from sent group by 1
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- Children, with what is known of their parents.
    v_ids := array(select job_id from penstock.blocked where partition_id = any (v_all)
                    order by job_id limit p_rows for update skip locked);
    with gone as (
        delete from penstock.blocked where job_id = any (v_ids) returning *
    ), edges as (
        delete from penstock.dependency as d using gone as g where d.child_id = g.job_id and d.parent_id = any (g.parents)
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt, facts)
        select penstock.shard_by(l.by_ids, j.key, l.number), g.job_id, g.partition_id, 1,
               json_build_object('state', 'blocked', 'run_at', g.run_at, 'runs_on_failure', g.runs_on_failure,
                   'parents', to_json(g.parents::text[]), 'ends', (
                       select coalesce(json_object_agg(p.id::text, o = 0), '{}')
                         from unnest(g.parents) as p(id) cross join lateral penstock.outcome_of(p.id) as o where o is not null))
          from gone as g join penstock.partitions_left() as l on l.id = g.partition_id
          left join lateral (select key from penstock.job_stored where id = g.job_id and l.is_owned limit 1) as j on true
         order by g.job_id
        returning partition_id
    ), counted as (
        insert into penstock.tally (partition_id, blocked, opened) select partition_id, -count(*), count(*) from sent group by 1
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- Dead letters; one for which its key halts when nothing starts there any more, together with the halt.
    v_ids := array(select d.job_id from penstock.dead as d
                    where d.partition_id = any (v_all)
                      and (d.partition_id = any (v_shut) or not exists (select from penstock.halted as h where h.job_id = d.job_id))
                    order by d.job_id limit p_rows for update skip locked);
    with gone as (
        delete from penstock.dead where job_id = any (v_ids) returning *
    ), released as (
        delete from penstock.halted where job_id = any (v_ids) returning *
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select penstock.shard_by(l.by_ids, j.key, l.number), g.job_id, g.partition_id, g.attempt, h.epoch,
               json_build_object('state', 'dead', 'started_at', g.started_at, 'failed_at', g.failed_at, 'worker', g.worker,
                                 'error', g.error, 'halted_at', h.since)
          from gone as g join penstock.partitions_left() as l on l.id = g.partition_id
          left join released as h on h.job_id = g.job_id
          left join lateral (select key from penstock.job_stored where id = g.job_id and l.is_owned limit 1) as j on true
         order by g.job_id
        returning partition_id
    ), counted as (
        insert into penstock.tally (partition_id, dead, opened) select partition_id, -count(*), count(*) from sent group by 1
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- What is ready: behind nothing that holds a key.
    v_shut := array(select p from unnest(v_shut) as p
                     where not exists (select from penstock.scheduled as s where s.partition_id = p and s.pos is not null)
                       and not exists (select from penstock.halted as h join penstock.dead as d on d.job_id = h.job_id
                                        where d.partition_id = p));
    -- What was set aside stays until a person has repaired or cancelled it: nothing could run elsewhere.
    v_rows := array(select ctid from penstock.ready where partition_id = any (v_shut) and reason is null
                     order by epoch, priority, pos, range, low limit p_rows for update)
           || array(select r.ctid from penstock.ready as r join penstock.partitions_left() as l on l.id = r.partition_id
                     where r.partition_id = any (v_plain) and r.reason is null
                       and (l.is_paused or not exists (select from penstock.worker_task as t
                                                        where t.queue_id = l.queue_id and t.task = r.task))
                     limit p_rows for update of r skip locked);
    with gone as (
        delete from penstock.ready where ctid = any (v_rows) returning *
    ), member as (
        select g.*, l.by_ids, l.number, g.range * 1024 + m.position as job_id, j.key
          from gone as g join penstock.partitions_left() as l on l.id = g.partition_id
         cross join lateral unnest(penstock.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select key from penstock.job_stored where id = g.range * 1024 + m.position and l.is_owned limit 1) as j on true
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select penstock.shard_by(by_ids, key, number), job_id, partition_id, attempt, case when key is not null then epoch end,
               json_build_object('state', 'ready', 'rescues', rescues, 'pos', pos, 'ready_at', ready_at)
          from member order by epoch, priority, pos, job_id
        returning job_id
    )
    select count(*) into v_count from sent;
    delete from penstock.load_range as r using penstock.partitions_left() as l
     where r.partition_id = l.id and l.is_draining and r.load_id is null and r.attempt is null;
    return v_sent + v_count;
end $$;

-- What is left on this shard, by queue and kind.
create function penstock.left_on_shard() returns table (queue text, kind text, n bigint)
language sql stable
begin atomic
    with counted as (
        select queue_id, 'partitions' as kind, count(*) as n
          from penstock.partition where is_current and shard = penstock.here() group by 1
        union all
        select p.queue_id, o.kind, sum(o.n) from (
            select partition_id, case when reason is null then 'ready' else 'set aside' end as kind,
                   sum(penstock.members_count(low, high, members)) as n from penstock.ready group by 1, 2
            union all
            select partition_id, 'running', sum(penstock.members_count(low, high, members)) from penstock.lease group by 1
            union all
            select partition_id, 'scheduled', sum(penstock.members_count(low, high, members)) from penstock.scheduled group by 1
            union all
            select partition_id, 'blocked', count(*) from penstock.blocked group by 1
            union all
            select partition_id, 'failed', count(*) from penstock.dead group by 1
            union all
            select partition_id, 'on their way', count(*) from penstock.outbox group by 1
            union all
            select partition_id, 'staged', count(*) from penstock.load_range where load_id is null group by 1) as o
          join penstock.partition as p on p.id = o.partition_id group by 1, 2
        union all
        select queue_id, 'halted keys', count(*) from penstock.halted group by 1
        union all
        select queue_id, 'idempotency keys', count(*) from penstock.dedup group by 1
        union all
        select queue_id, 'crons', count(*) from penstock.cron group by 1
        union all
        select queue_id, 'loads', count(*) from penstock.load_hold group by 1
        union all
        select l.queue_id, 'loads', count(*) from penstock.load_part as p join penstock.load as l on l.id = p.load_id
         where p.published_at is null group by 1
        union all
        select m.queue_id, 'producers', count(*)
          from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id and m.epoch < q.epoch
         where q.is_owned and not m.is_closed and exists (
               select from penstock.partition as p where p.id = any (m.partition_ids) and p.shard = penstock.here()) group by 1
    )
    select q.name, c.kind, sum(c.n)::bigint from counted as c join penstock.queue as q on q.id = c.queue_id
     group by 1, 2 order by 1, 2;
end;

-- Whether nothing is left on this shard. The same as left_on_shard, without counting.
create function penstock.is_vacant() returns boolean
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select not exists (select from penstock.ready) and not exists (select from penstock.lease)
       and not exists (select from penstock.scheduled) and not exists (select from penstock.blocked)
       and not exists (select from penstock.dead) and not exists (select from penstock.halted)
       and not exists (select from penstock.outbox) and not exists (select from penstock.dedup)
       and not exists (select from penstock.cron) and not exists (select from penstock.load_hold)
       and not exists (select from penstock.load_range where load_id is null)
       and not exists (select from penstock.load_part where published_at is null)
       and not exists (select from penstock.partition where is_current and shard = penstock.here())
       and not exists (select from penstock.queue where not is_open)
       and not exists (select from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id and m.epoch < q.epoch
                        where not m.is_closed)
$$;

create function penstock.refuse_sealed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'PS007', message = format(
        'shard %s is drained: learn where the partitions of its queues live by now', penstock.here());
end $$;

-- From now on nobody writes jobs to this shard, nor brings any; false where somebody is just doing so. Only where it is
-- being drained and has no partition in use. Whoever goes by a map of long ago is refused (PS007). Locks: the tables of
-- jobs and arrivals against writers, for a moment.
create function penstock.seal_shard() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.partition where is_current and shard = penstock.here())
       or not exists (select from penstock.shard where number = penstock.here() and state in ('draining', 'drained')) then
        perform penstock.refuse('shard', 'this shard is in use');
    end if;
    if not exists (select from pg_trigger where tgname = 'sealed' and tgrelid = 'penstock.job'::regclass) then
        perform set_config('lock_timeout', '100ms', true);
        create trigger sealed before insert on penstock.arrival for each statement execute function penstock.refuse_sealed();
        create trigger sealed before insert on penstock.job for each statement execute function penstock.refuse_sealed();
    end if;
    return true;
exception when lock_not_available then
    return false;
end $$;

alter function penstock.refuse_sealed security definer;
alter function penstock.seal_shard security definer;

-- What loads came to, for the shard that leads next. Nobody decides about a load here before this transaction ends.
create function penstock.loads_decided() returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtext('penstock.loads'));
    return json_build_object(
        'loads', (select coalesce(json_agg(l), '[]') from penstock.load as l),
        'batches', (select coalesce(json_agg(b), '[]') from penstock.load_batch as b),
        'parts', (select coalesce(json_agg(p), '[]') from penstock.load_part as p),
        'aborts', (select coalesce(json_agg(a), '[]') from penstock.load_abort as a));
end $$;

-- Takes over what another shard decided about loads, once: what a batch came to there is added to what it came to here.
create function penstock.take_loads(p_given json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into penstock.load (name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at)
    select name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at
      from json_populate_recordset(null::penstock.load, p_given -> 'loads')
    on conflict (name) do nothing;
    insert into penstock.load_batch as b (load_id, batch, rows, duplicates, bad_rows, published_at, attempt)
    select n.id, g.batch, g.rows, g.duplicates, g.bad_rows, g.published_at, g.attempt
      from json_populate_recordset(null::penstock.load_batch, p_given -> 'batches') as g
      join json_populate_recordset(null::penstock.load, p_given -> 'loads') as l on l.id = g.load_id
      join penstock.load as n on n.name = l.name
     where g.attempt is not null
    on conflict (load_id, batch) do update
       set rows = b.rows + excluded.rows, duplicates = b.duplicates + excluded.duplicates,
           bad_rows = b.bad_rows + excluded.bad_rows, published_at = excluded.published_at, attempt = excluded.attempt
     where b.attempt is null;
    insert into penstock.load_part (load_id, batch, shard, attempt, rows, duplicates, published_at)
    select n.id, g.batch, g.shard, g.attempt, g.rows, g.duplicates, g.published_at
      from json_populate_recordset(null::penstock.load_part, p_given -> 'parts') as g
      join json_populate_recordset(null::penstock.load, p_given -> 'loads') as l on l.id = g.load_id
      join penstock.load as n on n.name = l.name
     -- What was published here is in the batch itself.
     where g.shard <> penstock.here()
    on conflict do nothing;
    insert into penstock.load_abort (attempt, at)
    select attempt, at from json_populate_recordset(null::penstock.load_abort, p_given -> 'aborts')
    on conflict do nothing;
end $$;

-- A shard is drained from now on; false where it was not being drained. One that leads says so of itself, and has handed
-- over what it decided about loads. Locks: the catalogue.
create function penstock.end_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_number = penstock.here() then
        delete from penstock.load_part;
        delete from penstock.load_batch where attempt is not null;
        delete from penstock.load_abort;
    end if;
    perform penstock.next_version();
    update penstock.shard set state = 'drained' where number = p_number and state = 'draining';
    if not found then
        return false;
    end if;
    perform penstock.note_drained();
    return true;
end $$;

select penstock.renew_grants();
