-- breaking: no
-- What a person does to jobs: cancel, retry, reschedule, purge. A job is looked for where it may be, under the row's
-- lock; each look is a statement of its own, so that a job that has just moved is found in its new place. One that
-- moves faster than the looks is not found: the caller asks again.

-- For a person's looks at one queue. The first holds only rows that are not where they were enqueued (retried,
-- promoted, parked): it costs the path of a plain job nothing.
create index ready_out_of_order on penstock.ready (partition_id, range) where pos <> range or is_parked;
create index scheduled_of_partition on penstock.scheduled (partition_id, range);
create index blocked_of_partition on penstock.blocked (partition_id, job_id);

-- Cancels those jobs of a range that p_mask names: `cancelled` are those that waited and have ended now, `asked`
-- those that run and were asked to stop; the others have ended, are unknown, or moved meanwhile. Leases are read
-- without a lock: a handler may hold its own for long, and an ask that comes late is cleaned or heeded next time.
-- Locks: ready, scheduled, then blocked rows of the range.
create function penstock.cancel_in_range(p_range bigint, p_mask bit(1024), out cancelled bit(1024), out asked bit(1024))
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_none bit(1024) := repeat('0', 1024)::bit(1024);
    v_row  record;
begin
    cancelled := v_none;
    for v_row in
        select ctid as tid, partition_id, attempt, coalesce(members, penstock.span(low, high)) as map
          from penstock.ready
         where range = p_range and (coalesce(members, penstock.span(low, high)) & p_mask) <> v_none
           for update
    loop
        delete from penstock.ready where ctid = v_row.tid and (v_row.map & ~p_mask) = v_none;
        update penstock.ready set members = v_row.map & ~p_mask
         where ctid = v_row.tid and (v_row.map & ~p_mask) <> v_none;
        perform penstock.end_as_cancelled(p_range, v_row.partition_id, v_row.attempt, v_row.map & p_mask, 'ready');
        cancelled := cancelled | (v_row.map & p_mask);
    end loop;
    for v_row in
        select ctid as tid, partition_id, attempt, pos, coalesce(members, penstock.span(low, high)) as map
          from penstock.scheduled
         where range = p_range and (coalesce(members, penstock.span(low, high)) & p_mask) <> v_none
           for update
    loop
        delete from penstock.scheduled where ctid = v_row.tid and (v_row.map & ~p_mask) = v_none;
        update penstock.scheduled set members = v_row.map & ~p_mask
         where ctid = v_row.tid and (v_row.map & ~p_mask) <> v_none;
        perform penstock.end_as_cancelled(p_range, v_row.partition_id, v_row.attempt, v_row.map & p_mask, 'scheduled');
        cancelled := cancelled | (v_row.map & p_mask);
        -- It held its key, which goes on now.
        perform penstock.wake(queue_id) from penstock.partition where id = v_row.partition_id and v_row.pos is not null;
    end loop;
    for v_row in
        with gone as (
            delete from penstock.blocked
             where job_id between p_range * 1024 and p_range * 1024 + 1023 and get_bit(p_mask, (job_id % 1024)::int) = 1
            returning job_id, partition_id, parents
        ), edges as (
            delete from penstock.dependency as d using gone as g where d.parent_id = any (g.parents) and d.child_id = g.job_id
        )
        select partition_id, bit_or(penstock.single((job_id % 1024)::int)) as map from gone group by partition_id
    loop
        perform penstock.end_as_cancelled(p_range, v_row.partition_id, 1::smallint, v_row.map, 'blocked');
        cancelled := cancelled | v_row.map;
    end loop;
    select coalesce(bit_or(coalesce(members, penstock.span(low, high)) & p_mask), v_none)
      into asked from penstock.lease where range = p_range;
    if asked <> v_none then
        insert into penstock.cancellation (job_id)
        select p_range * 1024 + m from unnest(penstock.positions(0::smallint, 1024::smallint, asked)) as m
        on conflict do nothing;
    end if;
end $$;

-- Writes the end of waiting jobs of one range that were just taken from p_place.
create function penstock.end_as_cancelled(p_range bigint, p_partition int, p_attempt smallint, p_map bit(1024), p_place text)
returns void
language sql
begin atomic
    insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
    values (penstock.current_slice(), p_range, p_partition, 2, p_attempt, penstock.positions(0::smallint, 1024::smallint, p_map));
    insert into penstock.tally (partition_id, opened, scheduled, blocked)
    select p_partition, -n * (p_place = 'ready')::int, -n * (p_place = 'scheduled')::int, -n * (p_place = 'blocked')::int
      from (select bit_count(p_map)::int as n) as counted;
end;

-- Has the owners of these partitions read them anew before they start anything more: jobs of them left their places, and
-- may come back to others, where an owner that has read the old ones would not look. What it holds stays its own, under
-- the next epoch. To be called before any ready row is locked. Locks: the partitions' rows, by id.
create function penstock.read_anew(p_partitions int[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from penstock.partition where id = any (p_partitions) order by id for no key update;
    update penstock.partition set owner_epoch = owner_epoch + 1 where id = any (p_partitions);
end $$;

-- Moves a waiting job to another time; a time that has come makes it ready, behind what is ready already, or in its
-- place where it held its key; or sends it to the shard its key lives on by now. One that was ready takes a place anew when it is due. Returns the state it is in now, or
-- null where it does not wait. Locks: its scheduled row, or its partition's where an owner reads it, and its ready row,
-- or its blocked row; then its queue's map, shared.
create function penstock.reschedule_job(p_job bigint, p_run_at timestamptz) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_position smallint := p_job % 1024;
    v_row      record;
    v_place    record;
begin
    select ctid as tid, 'scheduled' as place, partition_id, priority, range, attempt, rescues, pos, epoch, task,
           penstock.members_count(low, high, members) = 1 as is_whole
      into v_row from penstock.scheduled
     where range = p_job / 1024 and penstock.has_member(low, high, members, v_position) for update;
    if found then
        delete from penstock.scheduled where ctid = v_row.tid and v_row.is_whole;
        update penstock.scheduled set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    else
        if p_run_at > now() then
            perform penstock.read_anew(array(
                select partition_id from penstock.ready
                 where range = p_job / 1024 and epoch is not null and penstock.has_member(low, high, members, v_position)));
        end if;
        select ctid as tid, 'ready' as place, partition_id, priority, range, attempt, rescues, null::bigint as pos, epoch, task,
               penstock.members_count(low, high, members) = 1 as is_whole
          into v_row from penstock.ready
         where range = p_job / 1024 and penstock.has_member(low, high, members, v_position) for update;
        if not found then
            update penstock.blocked set run_at = p_run_at where job_id = p_job;
            return case when found then 'blocked' end;
        end if;
        if p_run_at <= now() then
            return 'ready';
        end if;
        delete from penstock.ready where ctid = v_row.tid and v_row.is_whole;
        update penstock.ready set members = coalesce(members, penstock.span(low, high)) & ~penstock.single(v_position)
         where ctid = v_row.tid and not v_row.is_whole;
    end if;
    v_place := v_row;
    if p_run_at > now() then
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, attempt, rescues, pos, epoch, task)
        values (p_run_at, v_row.partition_id, v_row.priority, v_row.range, v_position, v_position + 1, v_row.attempt,
                v_row.rescues, v_row.pos, v_row.epoch, v_row.task);
    else
        if v_row.task = '' and v_row.pos is null then
            select * into v_place from penstock.place_by_map(v_row.partition_id, p_job);
        end if;
        insert into penstock.outbox (shard, job_id, partition_id, attempt)
        select shard, p_job, v_row.partition_id, v_row.attempt
          from penstock.partition where id = v_place.partition_id and shard <> penstock.here();
        if found then
            v_place := v_row;
        else
            insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, changed, epoch, task)
            values (v_place.partition_id, v_row.priority, coalesce(v_row.pos, penstock.draw_range()), v_row.range, v_position,
                    v_position + 1, v_row.attempt, v_row.rescues,
                    case when v_place.epoch is not null then pg_current_xact_id() end, v_place.epoch, v_row.task);
            perform penstock.wake(queue_id) from penstock.partition where id = v_place.partition_id;
        end if;
    end if;
    insert into penstock.tally (partition_id, opened, scheduled)
    select partition_id, sum(opened), sum(scheduled)
      from (values (v_place.partition_id, (p_run_at <= now())::int, 0),
                   (v_row.partition_id, -(v_row.place = 'ready')::int,
                    (p_run_at > now())::int - (v_row.place = 'scheduled')::int)) as c(partition_id, opened, scheduled)
     group by partition_id;
    return case when p_run_at > now() then 'scheduled' else 'ready' end;
end $$;

-- Where a job of a queue with an owner becomes ready, by the map of now, which is held.
create function penstock.place_by_map(p_partition int, p_job bigint, out partition_id int, out epoch int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_home penstock.partition;
begin
    select * into v_home from penstock.partition where id = p_partition;
    epoch := penstock.hold_map(v_home.queue_id);
    select penstock.place_by(m.partition_ids, j.key, p_partition) into partition_id
      from penstock.queue_map as m left join lateral (select key from penstock.job_stored where id = p_job limit 1) as j on true
     where m.queue_id = v_home.queue_id and m.epoch = place_by_map.epoch;
end $$;

-- Lets a job that was set aside back in line: where it was, or where its queue has an owner, behind all others, by the map
-- of now, or to the shard its key lives on. Its state then; 'missing' where it is not stored still; null where it was not
-- set aside. Locks: its ready row, then its queue's map, shared.
create function penstock.let_back(p_job bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_row   record;
    v_job   record;
    v_place record;
begin
    select r.ctid as tid, r.*, p.queue_id, q.is_owned into v_row
      from penstock.ready as r join penstock.partition as p on p.id = r.partition_id join penstock.queue as q on q.id = p.queue_id
     where r.range = p_job / 1024 and penstock.has_member(r.low, r.high, r.members, (p_job % 1024)::int) and r.reason is not null
       for update of r;
    if not found then
        return null;
    end if;
    select priority, task into v_job from penstock.job_stored where id = p_job limit 1;
    if not found then
        return 'missing';
    end if;
    delete from penstock.ready where ctid = v_row.tid;
    v_place := v_row;
    if v_row.is_owned then
        select m.partition_id, m.epoch, penstock.draw_range() as pos into v_place
          from penstock.place_by_map(v_row.partition_id, p_job) as m;
    end if;
    insert into penstock.outbox (shard, job_id, partition_id, attempt)
    select shard, p_job, v_row.partition_id, v_row.attempt
      from penstock.partition where id = v_place.partition_id and shard <> penstock.here();
    if not found then
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, ready_at, changed, epoch, task)
        values (v_place.partition_id, v_job.priority, v_place.pos, v_row.range, v_row.low, v_row.high, v_row.attempt, v_row.rescues,
                v_row.ready_at, case when v_row.is_owned then pg_current_xact_id() end, v_place.epoch,
                case when v_row.is_owned then '' else v_job.task end);
        insert into penstock.tally (partition_id, opened)
        select * from (values (v_row.partition_id, -1), (v_place.partition_id, 1)) as c(id, n)
         where v_row.partition_id <> v_place.partition_id;
        perform penstock.wake(v_row.queue_id);
    end if;
    return 'ready';
end $$;

-- Dead letters become ready again, behind what is ready already; those of one range that were on the same attempt go
-- together. Where the queue has an owner they take their place by the map of now. The one for which a key halted is
-- the first of its key again, where it was and by its own map: the others of the key may wait there, by that map, and
-- must not overtake it. That map is not drained while the key is halted, and held meanwhile. Those whose key lives on
-- another shard by now are sent there. The row's lock is the fence, the attempts made
-- stay in `failure`. Returns those that were dead. Locks: their rows by id, then maps.
create function penstock.retry_dead(p_ids bigint[]) returns setof bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queues int[];
    v_epochs int[];
    v_done   bigint[];
begin
    perform from penstock.dead where job_id = any (p_ids) order by job_id for update;
    v_queues := array(select distinct q.id
                        from penstock.dead as d join penstock.partition as p on p.id = d.partition_id
                        join penstock.queue as q on q.id = p.queue_id
                       where d.job_id = any (p_ids) and q.is_owned order by q.id);
    if v_queues <> '{}' then
        v_epochs := array(select penstock.hold_map(q) from unnest(v_queues) as q);
        perform from penstock.queue_map where queue_id = any (v_queues) and not is_drained order by queue_id, epoch for share;
    end if;

    with gone as (
        -- One that is not stored stays: nothing could run.
        delete from penstock.dead as d
         where d.job_id = any (p_ids) and exists (select from penstock.job_stored as j where j.id = d.job_id)
        returning job_id, partition_id, task, attempt
    ), stored as (
        select distinct on (id) id, priority, key from (
            select id, priority, key from penstock.job where id = any (p_ids)
            union all
            select id, priority, key from penstock.job_kept where id = any (p_ids)) as j
    ), ended as (
        delete from penstock.halted where queue_id = any (v_queues) and job_id = any (p_ids)
        returning queue_id, key, job_id, epoch
    ), given as (
        select g.job_id, g.attempt, j.priority, j.key, p.queue_id, g.partition_id,
               case when m.epoch is null then g.task else '' end as task, m.epoch, m.partition_ids, e.epoch as first_epoch
          from gone as g join stored as j on j.id = g.job_id join penstock.partition as p on p.id = g.partition_id
          left join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join penstock.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
          left join ended as e on e.job_id = g.job_id
    ), placed as materialized (
        select g.job_id, g.attempt, g.priority, g.queue_id, g.key, g.task,
               case when g.first_epoch is null and g.epoch is not null
                    then penstock.place_by(g.partition_ids, g.key, g.partition_id) else g.partition_id end as partition_id,
               coalesce(g.first_epoch, g.epoch) as epoch,
               case when g.first_epoch is not null then g.job_id / 1024 end as pos, g.partition_id as came_from
          from given as g
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt)
        select t.shard, p.job_id, p.came_from, least(p.attempt + 1, 32767)
          from placed as p join penstock.partition as t on t.id = p.partition_id and t.shard <> penstock.here()
         order by p.job_id
        returning job_id
    ), listed as (
        -- What is left by an earlier map may be known key by key.
        update penstock.map_rest as r
           set keys = case when r.keys is not null then array(select unnest(r.keys) union select unnest(p.keys)) end,
               found = array(select unnest(r.found) union select unnest(p.keys))
          from (select queue_id, epoch, partition_id, array_agg(key) as keys
                  from placed where pos is not null group by queue_id, epoch, partition_id) as p
         where r.queue_id = p.queue_id and r.epoch = p.epoch and r.partition_id = p.partition_id
    ), again as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, changed, epoch, task)
        select partition_id, priority, coalesce(pos, penstock.draw_range()), range, low, high, members, attempt,
               case when epoch is not null then pg_current_xact_id() end, epoch, task
          from (select partition_id, priority, job_id / 1024 as range, min(job_id % 1024)::smallint as low,
                       (max(job_id % 1024) + 1)::smallint as high,
                       case when count(*) <= max(job_id % 1024) - min(job_id % 1024)
                            then bit_or(penstock.single((job_id % 1024)::int)) end as members,
                       least(attempt + 1, 32767)::smallint as attempt, task, pos, epoch
                  from placed where job_id not in (select job_id from sent)
                 group by partition_id, priority, job_id / 1024, attempt, task, pos, epoch
                 order by job_id / 1024) as joined
        returning partition_id
    ), counted as (
        insert into penstock.tally (partition_id, dead, opened)
        select partition_id, sum(dead), sum(opened) from (
            select partition_id, -1 as dead, 0 as opened from gone
            union all
            select case when job_id in (select job_id from sent) then came_from else partition_id end, 0, 1 from placed) as c
         group by partition_id
    ), woken as (
        select count(penstock.wake(queue_id)) as n from (select distinct queue_id from placed) as q
    )
    select array_agg(gone.job_id) into v_done from gone, woken;
    return query select unnest(v_done);
end $$;

-- The purges take whole rows from a place on, as many as p_limit, end them as cancelled, and tell the place to go on
-- from, how many jobs it were, and their ranges. Rows that somebody holds are passed over. Null place: nothing found.

-- Index: ready_in_order.
create function penstock.purge_ready(
    p_partition int, p_priority int, p_from bigint, p_until bigint, p_limit int,
    out place bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from penstock.ready where ctid = any (array(
            select ctid from penstock.ready
             where partition_id = p_partition and not is_parked and priority = p_priority and pos between p_from and p_until
             order by pos limit p_limit for update skip locked))
        returning pos, range, attempt,
                  case when high = low + 1 then array[low] else penstock.positions(low, high, members) end as positions
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), range, p_partition, 2, attempt, positions from gone
    ), counted as (
        insert into penstock.tally (partition_id, opened)
        select p_partition, -sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(pos), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: ready_out_of_order.
create function penstock.purge_parked(
    p_partition int, p_from bigint, p_until bigint, p_limit int, out place bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from penstock.ready where ctid = any (array(
            select ctid from penstock.ready
             where partition_id = p_partition and (pos <> range or is_parked) and is_parked and range between p_from and p_until
             order by range limit p_limit for update skip locked))
        returning range, attempt,
                  case when high = low + 1 then array[low] else penstock.positions(low, high, members) end as positions
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), range, p_partition, 2, attempt, positions from gone
    ), counted as (
        insert into penstock.tally (partition_id, opened)
        select p_partition, -sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(range), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: scheduled_of_partition.
create function penstock.purge_scheduled(
    p_partition int, p_from bigint, p_until bigint, p_limit int, out place bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from penstock.scheduled where ctid = any (array(
            select ctid from penstock.scheduled
             where partition_id = p_partition and range between p_from and p_until
             order by range limit p_limit for update skip locked))
        returning range, attempt,
                  case when high = low + 1 then array[low] else penstock.positions(low, high, members) end as positions
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), range, p_partition, 2, attempt, positions from gone
    ), counted as (
        insert into penstock.tally (partition_id, scheduled)
        select p_partition, -sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(range), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: blocked_of_partition. The children of one range end as one row of history.
create function penstock.purge_blocked(
    p_partition int, p_from bigint, p_until bigint, p_limit int, out place bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from penstock.blocked where job_id = any (array(
            select job_id from penstock.blocked
             where partition_id = p_partition and job_id >= p_from * 1024 and job_id < (p_until + 1) * 1024
             order by job_id limit p_limit for update skip locked))
        returning job_id, parents
    ), edges as (
        delete from penstock.dependency as d using gone as g where d.parent_id = any (g.parents) and d.child_id = g.job_id
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), job_id / 1024, p_partition, 2, 1, array_agg((job_id % 1024)::smallint order by job_id)
          from gone group by job_id / 1024
    ), counted as (
        insert into penstock.tally (partition_id, blocked) select p_partition, -count(*) from gone having count(*) > 0
    )
    select max(job_id / 1024), count(*), coalesce(array_agg(distinct job_id / 1024), '{}') from gone;
end;

-- Dead letters become history: failed, at the time they failed. Returns how many. Locks: their rows by id.
create function penstock.bury_dead(p_ids bigint[]) returns bigint
language sql
begin atomic
    with gone as (
        delete from penstock.dead where job_id = any (array(
            select job_id from penstock.dead where job_id = any (p_ids) order by job_id for update skip locked))
        returning *
    ), ended as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, finished_at, worker, positions, start_ages, errors)
        select penstock.current_slice(), job_id / 1024, partition_id, 1, attempt, failed_at, worker,
               array_agg((job_id % 1024)::smallint order by job_id),
               array_agg((extract(epoch from failed_at - started_at) * 1000000)::bigint order by job_id), array_agg(error order by job_id)
          from gone group by job_id / 1024, partition_id, attempt, failed_at, worker
    ), counted as (
        insert into penstock.tally (partition_id, dead) select partition_id, -count(*) from gone group by partition_id
    )
    select count(*) from gone;
end;
