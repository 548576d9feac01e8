-- What leaves a shard that is being drained, or the earlier place of a partition that moved.

-- Puts what cannot end on this shard into the outbox, as it is, some of each kind; how many jobs. Delays and retries,
-- children, dead letters; of queues without an owner what is paused, or of a task that nobody here knows; and of
-- partitions in which nothing starts any more all that is left, by key in its order: first what holds a key. Stages cannot
-- be published here any more and are dropped. Locks: the rows it takes, skipping those that are locked; but where order counts it
-- waits for them, for a second (55P03).
create or replace function @schema@.send_off(p_rows int) returns bigint
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
    perform @schema@.shut_partitions_left();
    select coalesce(array_agg(id) filter (where is_draining or shut_by is not null), '{}'),
           coalesce(array_agg(id) filter (where is_draining and not is_owned), '{}'),
           coalesce(array_agg(id) filter (where shut_by is not null), '{}')
      into v_all, v_plain, v_shut from @schema@.partitions_left();
    if v_all = '{}' then
        return 0;
    end if;

    -- What waits for a time, and of partitions that are shut also what holds its key.
    v_rows := array(select ctid from @schema@.scheduled
                     where partition_id = any (v_all) and (pos is null or partition_id = any (v_shut))
                     order by partition_id, range limit p_rows for update skip locked);
    with gone as (
        delete from @schema@.scheduled where ctid = any (v_rows)
        returning due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos, epoch, task
    ), member as (
        select g.*, l.by_ids, l.number, g.range * 1024 + m.position as job_id, j.key
          from gone as g join @schema@.partitions_left() as l on l.id = g.partition_id
         cross join lateral unnest(@schema@.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select key from @schema@.job_stored where id = g.range * 1024 + m.position and l.is_owned limit 1) as j on true
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select @schema@.shard_by(by_ids, key, number), job_id, partition_id, attempt,
               case when pos is not null and key is not null then epoch end,
               json_build_object('state', 'scheduled', 'rescues', rescues, 'pos', pos, 'due_at',
                   case when due_at >= @schema@.paused_from() then due_at - (1::bigint << 53) * interval '1 microsecond'
                        else due_at end)
          from member order by due_at, range, job_id
        returning partition_id
    ), counted as (
        insert into @schema@.tally (partition_id, scheduled, opened) select partition_id, -count(*), count(*) from sent group by 1
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- Children, with what is known for good of their parents. One that is cancelled for now arrives as blocked: whether it
    -- is cancelled is decided there.
    v_ids := array(select job_id from @schema@.blocked where partition_id = any (v_all)
                    order by job_id limit p_rows for update skip locked);
    with gone as (
        delete from @schema@.blocked where job_id = any (v_ids)
        returning job_id, partition_id, run_at, on_parent_failure, parents, cancelled_at, was_cancelled
    ), edges as (
        delete from @schema@.dependency as d using gone as g where d.child_id = g.job_id and d.parent_id = any (g.parents)
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt, facts)
        select @schema@.shard_by(l.by_ids, j.key, l.number), g.job_id, g.partition_id, 1,
               json_build_object('state', 'blocked', 'run_at', g.run_at, 'on_parent_failure', g.on_parent_failure,
                   'was_cancelled', g.was_cancelled,
                   'parents', to_json(g.parents::text[]), 'ends', (
                       select coalesce(json_object_agg(p.id::text, o = 0), '{}')
                         from unnest(g.parents) as p(id) cross join lateral @schema@.outcome_of(p.id) as o
                        where o is not null and not @schema@.may_come_back(p.id)))
          from gone as g join @schema@.partitions_left() as l on l.id = g.partition_id
          left join lateral (select key from @schema@.job_stored where id = g.job_id and l.is_owned limit 1) as j on true
         order by g.job_id
        returning partition_id
    ), counted as (
        insert into @schema@.tally (partition_id, blocked, opened)
        select partition_id, -count(*) filter (where cancelled_at is null), count(*) from gone group by 1
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- Dead letters; one for which its key halts when nothing starts there any more, together with the halt.
    v_ids := array(select d.job_id from @schema@.dead as d
                    where d.partition_id = any (v_all)
                      and (d.partition_id = any (v_shut) or not exists (select from @schema@.halted as h where h.job_id = d.job_id))
                    order by d.job_id limit p_rows for update skip locked);
    with gone as (
        delete from @schema@.dead where job_id = any (v_ids)
        returning job_id, partition_id, attempt, started_at, failed_at, worker, error, cause
    ), released as (
        delete from @schema@.halted where job_id = any (v_ids) returning job_id, epoch, since
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select @schema@.shard_by(l.by_ids, j.key, l.number), g.job_id, g.partition_id, g.attempt, h.epoch,
               json_build_object('state', 'dead', 'started_at', g.started_at, 'failed_at', g.failed_at, 'worker', g.worker,
                                 'error', g.error, 'halted_at', h.since)
          from gone as g join @schema@.partitions_left() as l on l.id = g.partition_id
          left join released as h on h.job_id = g.job_id
          left join lateral (select key from @schema@.job_stored where id = g.job_id and l.is_owned limit 1) as j on true
         order by g.job_id
        returning partition_id
    ), counted as (
        insert into @schema@.tally (partition_id, dead, opened) select partition_id, -count(*), count(*) from sent group by 1
    ), causes as (
        insert into @schema@.cause_tally (cause, dead) select cause, -count(*) from gone group by cause
    )
    select count(*) into v_count from sent;
    v_sent := v_sent + v_count;

    -- What is ready: behind nothing that holds a key.
    v_shut := array(select p from unnest(v_shut) as p
                     where not exists (select from @schema@.scheduled as s where s.partition_id = p and s.pos is not null)
                       and not exists (select from @schema@.halted as h join @schema@.dead as d on d.job_id = h.job_id
                                        where d.partition_id = p));
    -- What was set aside stays until a person has repaired or cancelled it: nothing could run elsewhere.
    v_rows := array(select ctid from @schema@.ready where partition_id = any (v_shut) and reason is null
                     order by epoch, priority, pos, range, low limit p_rows for update)
           || array(select r.ctid from @schema@.ready as r join @schema@.partitions_left() as l on l.id = r.partition_id
                     where r.partition_id = any (v_plain) and r.reason is null
                       and (l.is_paused or not exists (select from @schema@.worker_task as t
                                                        where t.queue_id = l.queue_id and t.task = r.task))
                     limit p_rows for update of r skip locked);
    with gone as (
        delete from @schema@.ready where ctid = any (v_rows)
        returning partition_id, priority, range, low, high, members, attempt, rescues, pos, ready_at, epoch
    ), member as (
        select g.*, l.by_ids, l.number, g.range * 1024 + m.position as job_id, j.key
          from gone as g join @schema@.partitions_left() as l on l.id = g.partition_id
         cross join lateral unnest(@schema@.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select key from @schema@.job_stored where id = g.range * 1024 + m.position and l.is_owned limit 1) as j on true
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt, epoch, facts)
        select @schema@.shard_by(by_ids, key, number), job_id, partition_id, attempt, case when key is not null then epoch end,
               json_build_object('state', 'ready', 'rescues', rescues, 'pos', pos, 'ready_at', ready_at)
          from member order by epoch, priority, pos, job_id
        returning job_id
    )
    select count(*) into v_count from sent;
    delete from @schema@.load_range as r using @schema@.partitions_left() as l
     where r.partition_id = l.id and l.is_draining and r.load_id is null and r.commit_name is null;
    return v_sent + v_count;
end $$;
