-- What is due becomes ready.

-- promote: what is due becomes ready. Retries that are due together rejoin their range. Those that held their key come
-- back to where they stood; everything else joins the end of the order, and with an owner that is by the newest map,
-- job by job where it was written by another; a job whose key lives on another shard by now is sent there. What belongs
-- to a paused load waits on, and so does what would become ready by a map that is not open. Never by a scan, which a
-- server that has not looked at a fast growing table yet would choose. Index: scheduled_by_due_time.
create or replace function @schema@.promote(p_limit int) returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_rows      tid[];
    v_moved     tid[];
    v_queues    int[];
    v_epochs    int[];
    v_announced int[] := @schema@.partitions_announced();
begin
    -- What is due of a paused load waits on, in the order it was due. Whoever resumes it waits until this is done.
    perform from @schema@.load where is_paused order by id for share;
    if found then
        update @schema@.scheduled as s set due_at = @schema@.paused_at(paused.pos)
          from (select tid, @schema@.draw_range() as pos
                  from (select s.ctid as tid from @schema@.scheduled as s
                          join @schema@.load_range as r on r.range = s.range
                          join @schema@.load as l on l.id = r.load_id and l.is_paused
                         where s.due_at <= now()
                         order by s.due_at, s.range, @schema@.first_member(s.low, s.members) for update of s) as due) as paused
         where s.ctid = paused.tid;
    end if;
    v_rows := array(select ctid from @schema@.scheduled
                     where due_at <= now() and (v_announced = '{}' or pos is not null or partition_id <> all (v_announced))
                     order by due_at limit p_limit for update skip locked);
    v_queues := array(select distinct p.queue_id
                        from @schema@.scheduled as s join @schema@.partition as p on p.id = s.partition_id
                       where s.ctid = any (v_rows) and s.task = '' and s.pos is null);
    if v_queues <> '{}' then
        v_epochs := array(select @schema@.lock_newest_map(q) from unnest(v_queues) as q);
        -- Each of their jobs is looked at: a bounded number, the rest next time.
        v_moved := array(
            select s.ctid from @schema@.scheduled as s join @schema@.partition as p on p.id = s.partition_id
              join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
             where s.ctid = any (v_rows) and s.task = '' and s.pos is null and s.epoch is distinct from h.epoch
             order by s.due_at, s.range offset 100);
        v_rows := array(select unnest(v_rows) except select unnest(v_moved));
    end if;

    if v_rows = '{}' then
        return 0;
    end if;
    return @schema@.promote_some(v_rows, v_queues, v_epochs);
end $$;

-- Makes these rows ready, which the caller has locked, by maps that it has locked too; where that is refused, by
-- halves, then job by job. A job that is refused alone is set aside, and where not even that can be written it stays
-- where it is, and is told.
create or replace function @schema@.promote_some(p_rows tid[], p_queues int[], p_epochs int[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_error text;
    v_job   bigint;
begin
    begin
        return @schema@.promote_rows(p_rows, p_queues, p_epochs);
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    if cardinality(p_rows) = 1 then
        p_rows := @schema@.take_scheduled_apart(p_rows[1]);
    end if;
    if cardinality(p_rows) > 1 then
        -- What is due first joins the order first.
        p_rows := array(select ctid from @schema@.scheduled where ctid = any (p_rows)
                         order by due_at, range, @schema@.first_member(low, members));
        return @schema@.promote_some(p_rows[:cardinality(p_rows) / 2], p_queues, p_epochs)
             + @schema@.promote_some(p_rows[cardinality(p_rows) / 2 + 1:], p_queues, p_epochs);
    end if;
    select range * 1024 + low into v_job from @schema@.scheduled where ctid = p_rows[1];
    begin
        perform @schema@.set_scheduled_aside(p_rows[1], 'it is due and cannot be made ready: ' || v_error);
        return 1;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform @schema@.note_trouble_with('promote', v_job, v_error);
        return 0;
    end;
end $$;

-- Gives each job of a scheduled row a row of its own, like it; where those are.
create or replace function @schema@.take_scheduled_apart(p_row tid) returns tid[]
language sql
begin atomic
    with gone as (
        delete from @schema@.scheduled where ctid = p_row
        returning due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos, epoch, task
    ), parts as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, attempt, rescues, pos, epoch, task)
        select due_at, partition_id, priority, range, m, m + 1, attempt, rescues, pos, epoch, task
          from gone cross join lateral unnest(@schema@.positions(low, high, members)) as m
        returning ctid
    )
    select array(select ctid from parts);
end;

-- Sets the one job of a scheduled row aside.
create or replace function @schema@.set_scheduled_aside(p_row tid, p_reason text) returns void
language sql
begin atomic
    with gone as (
        delete from @schema@.scheduled where ctid = p_row
        returning due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos, epoch, task
    ), aside as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason, task)
        select partition_id, priority, coalesce(pos, @schema@.draw_range()), range, low, high, attempt, rescues, true,
               left(p_reason, 1000), task
          from gone
    )
    insert into @schema@.tally (partition_id, opened, scheduled) select partition_id, 1, -1 from gone;
end;

-- Makes these rows ready, all or none; how many jobs.
create or replace function @schema@.promote_rows(p_rows tid[], p_queues int[], p_epochs int[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with due as (
        delete from @schema@.scheduled where ctid = any (p_rows)
        returning due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos, epoch, task
    ), given as materialized (
        select d.*, p.queue_id, m.partition_ids, m.epoch as map_epoch,
               m.epoch is not null and d.pos is null and d.epoch is distinct from m.epoch as is_moved
          from due as d join @schema@.partition as p on p.id = d.partition_id
          left join unnest(p_queues, p_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join @schema@.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
    ), moved as materialized (
        -- One that is not stored has a key that nobody knows, and so no partition by it: it is set aside where it was.
        select g.*, m.position, case when j.id is null then @schema@.not_stored() end as reason,
               case when j.id is null then g.partition_id
                    else @schema@.partition_for_key(g.partition_ids, j.key, g.partition_id) end as target_id
          from given as g
         cross join lateral unnest(@schema@.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select id, key from @schema@.job_stored where id = g.range * 1024 + m.position limit 1) as j on true
         where g.is_moved
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt)
        select t.shard, m.range * 1024 + m.position, m.partition_id, m.attempt
          from moved as m join @schema@.partition as t on t.id = m.target_id and t.shard <> @schema@.here()
         order by m.due_at, m.range, m.position
        returning partition_id
    ), routed as (
        select partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, due_at, low, high, members,
               null as reason
          from given where not is_moved
        union all
        select t.id, m.queue_id, m.priority, m.range, m.attempt, m.rescues, m.task, null,
               case when m.reason is null then m.map_epoch end, m.due_at,
               min(m.position), (max(m.position) + 1)::smallint, bit_or(@schema@.single(m.position)), m.reason
          from moved as m join @schema@.partition as t on t.id = m.target_id and t.shard = @schema@.here()
         group by t.id, m.queue_id, m.priority, m.range, m.attempt, m.rescues, m.task, m.map_epoch, m.due_at, m.low, m.reason,
                  case when m.reason is not null then m.position end
    ), joined as (
        select partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, reason,
               min(due_at) as due_at, min(low) as low, max(high) as high,
               case when count(*) = 1 then (array_agg(members))[1]
                    else bit_or(coalesce(members, @schema@.span(low, high))) end as members
          from routed
         group by partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, reason,
                  case when reason is not null then low end
         order by min(due_at), range, min(@schema@.first_member(low, members))
    ), again as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, is_parked,
                                    reason, changed, epoch, task)
        select partition_id, priority, coalesce(pos, @schema@.draw_range()), range, low, high, members, attempt, rescues,
               reason is not null, reason, case when epoch is not null then pg_current_xact_id() end, epoch, task
          from joined
        returning partition_id, @schema@.members_count(low, high, members) as n
    ), counted as (
        insert into @schema@.tally (partition_id, opened, scheduled)
        select partition_id, sum(opened), sum(scheduled) from (
            select partition_id, n as opened, 0 as scheduled from again
            union all
            select partition_id, 1, 0 from sent
            union all
            select partition_id, 0, -@schema@.members_count(low, high, members) from due) as c
         group by partition_id
    ), woken as (
        select count(@schema@.wake(queue_id)) from (select distinct queue_id from joined) as q
    )
    select coalesce(sum(n), 0) + (select count(*) from sent) into v_count from again, woken;
    return v_count;
end $$;
