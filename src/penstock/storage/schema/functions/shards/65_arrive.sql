-- What comes from other shards.

-- Takes up jobs as they were on a shard that is being drained: ready where they stood, waiting for a time or for other jobs,
-- dead letters, and the halt of a key. What its key waits for is waited for here from now on, by the map it was routed by.
create or replace function @schema@.take_as_they_were(p_jobs json) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    with given as materialized (
        select g.*, decode(g.key_hex, 'hex') as key, g.facts ->> 'state' as state,
               case when g.epoch is not null then g.epoch when g.is_owned then g.map_epoch end as kept_epoch,
               case when g.is_owned then '' else g.task end as range_task, f.*
          from json_to_recordset(p_jobs)
               as g(job_id bigint, attempt smallint, priority smallint, task text, key_hex text, facts json, epoch int,
                    queue_id int, is_owned boolean, map_epoch int, target_id int)
         cross join lateral json_to_record(g.facts)
               as f(pos bigint, rescues smallint, ready_at timestamptz, due_at timestamptz, run_at timestamptz,
                    on_parent_failure text, was_cancelled boolean, parents json, ends json, started_at timestamptz, failed_at timestamptz,
                    worker text, error text, halted_at timestamptz)
    ), readies as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at,
                                    changed, epoch, task)
        select target_id, priority, case when is_owned then pos else @schema@.carried_pos(pos) end, job_id / 1024,
               min(job_id % 1024), max(job_id % 1024) + 1,
               case when count(*) <= max(job_id % 1024) - min(job_id % 1024) then bit_or(@schema@.single((job_id % 1024)::int)) end,
               attempt, rescues, ready_at, case when is_owned then pg_current_xact_id() end, kept_epoch, range_task
          from given where state = 'ready'
         group by target_id, priority, pos, job_id / 1024, attempt, rescues, ready_at, is_owned, kept_epoch, range_task
    ), later as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos,
                                        epoch, task)
        select due_at, target_id, priority, job_id / 1024, min(job_id % 1024), max(job_id % 1024) + 1,
               case when count(*) <= max(job_id % 1024) - min(job_id % 1024) then bit_or(@schema@.single((job_id % 1024)::int)) end,
               attempt, rescues, pos, case when pos is not null then kept_epoch end, range_task
          from given where state = 'scheduled'
         group by target_id, priority, pos, job_id / 1024, attempt, rescues, due_at, kept_epoch, range_task
    ), children as (
        insert into @schema@.blocked (job_id, partition_id, priority, task, run_at, on_parent_failure, was_cancelled, parents)
        select job_id, target_id, priority, task, run_at, on_parent_failure, was_cancelled,
               array(select value::bigint from json_array_elements_text(parents))
          from given where state = 'blocked'
    ), edges as (
        insert into @schema@.dependency (parent_id, child_id, is_elsewhere)
        select distinct p.value::bigint, g.job_id, not @schema@.is_here(p.value::bigint)
          from given as g cross join lateral json_array_elements_text(g.parents) as p where g.state = 'blocked'
        on conflict do nothing
    ), ends as (
        insert into @schema@.parent_end as h (job_id, has_succeeded, is_final)
        select distinct on (1) e.key::bigint, e.value::boolean, true
          from given as g cross join lateral json_each_text(g.ends) as e where g.state = 'blocked'
        on conflict (job_id) do update set has_succeeded = excluded.has_succeeded, is_final = true where not h.is_final
    ), failed as materialized (
        select g.*, s.shape, @schema@.cause_of(g.queue_id, g.task, s.shape) as cause
          from given as g cross join lateral (select @schema@.error_shape(g.error) as shape offset 0) as s where state = 'dead'
    ), dead_letters as (
        insert into @schema@.dead (job_id, partition_id, task, attempt, started_at, failed_at, worker, error, cause)
        select job_id, target_id, task, attempt, started_at, failed_at, worker, error, cause from failed
    ), causes as (
        -- They failed elsewhere, and were counted there.
        insert into @schema@.cause_tally (cause, queue_id, task, shape, dead)
        select cause, queue_id, min(task), min(shape), count(*) from failed group by cause, queue_id
    ), halts as (
        insert into @schema@.halted (queue_id, key, job_id, epoch, since)
        select queue_id, key, job_id, epoch, halted_at from given where halted_at is not null
        on conflict do nothing
    ), guests as (
        insert into @schema@.map_guest (queue_id, epoch, key, job_id, partition_id)
        select queue_id, epoch, key, job_id, target_id from given where epoch is not null and key is not null
        on conflict do nothing
    )
    insert into @schema@.tally (partition_id, opened, scheduled, blocked, dead)
    select target_id, count(*) filter (where state = 'ready'), count(*) filter (where state = 'scheduled'),
           count(*) filter (where state = 'blocked'), count(*) filter (where state = 'dead')
      from given group by target_id
$$;

-- Enters the ranges of jobs that came here under their load. Locks: the loads' names.
create or replace function @schema@.take_load_ranges(p_ranges json) returns void
language sql
begin atomic
    insert into @schema@.load (name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at, trace)
    select distinct on (l.name) l.name, g.queue_id, l.is_stream, l.origin, l.is_paused, l.cancelled_at, l.created_at, l.trace
      from json_to_recordset(p_ranges) as g(queue_id int, load json)
     cross join lateral json_to_record(g.load)
           as l(name text, is_stream boolean, origin text, is_paused boolean, cancelled_at timestamptz, created_at timestamptz,
                trace jsonb)
     order by l.name
    on conflict do nothing;
    insert into @schema@.load_range (range, stage, load_id, size, partition_id, priority, has_idempotency_keys, task)
    select distinct on (g.range) g.range, '', n.id, (g.load ->> 'size')::smallint, g.target_id, g.priority, false, g.task
      from json_to_recordset(p_ranges) as g(range bigint, target_id int, priority smallint, task text, load json)
      join @schema@.load as n on n.name = g.load ->> 'name'
     order by g.range
    on conflict do nothing;
end;

-- Makes jobs of another shard's outbox ready here, once each, in their order, or what they were, where that shard is
-- being drained (@schema@.take_as_they_were); or sends them on where their key has moved again. p_as_of: this shard's time
-- before the outbox was read. Whoever asked long ago may have lost its lock on it to another, and the arrival be forgotten
-- since (after a day at least): it has to read anew. Locks: arrivals, the queues' maps (shared).
create or replace function @schema@.take_arrivals(p_from int, p_as_of timestamptz, p_jobs json) returns void
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_new    bigint[];
    v_queues int[];
    v_epochs int[];
    v_count  int;
    v_others json;
    v_loads  json;
begin
    if clock_timestamp() > p_as_of + interval '10 minutes' then
        raise exception using errcode = '55P03', message = 'what is carried was read too long ago: read it again';
    end if;
    with new as (
        insert into @schema@.arrival (shard, outbox_id)
        select p_from, outbox_id from json_to_recordset(p_jobs) as g(outbox_id bigint) order by outbox_id
        on conflict do nothing returning outbox_id
    )
    select array_agg(outbox_id) into v_new from new;
    v_queues := array(select distinct p.queue_id
                        from json_to_recordset(p_jobs) as g(outbox_id bigint, partition_id int)
                        join @schema@.partition as p on p.id = g.partition_id where g.outbox_id = any (v_new));
    v_epochs := array(select @schema@.lock_newest_map(q) from unnest(v_queues) as q);
    if not (select @schema@.are_closed(array_agg(w.queue_id), array_agg(w.epoch))
              from (select distinct p.queue_id, g.epoch
                      from json_to_recordset(p_jobs) as g(outbox_id bigint, partition_id int, epoch int)
                      join @schema@.partition as p on p.id = g.partition_id
                     where g.outbox_id = any (v_new) and g.epoch is not null) as w) then
        raise exception using errcode = '55P03', message = 'somebody writes by an earlier map here: carry it later';
    end if;

    -- One that was here before may lie in a table of jobs that prune lets go, since nobody wanted it here: it is kept
    -- from now on, and in one partition.
    delete from @schema@.job where id = any (array(
        select job_id from json_to_recordset(p_jobs) as g(outbox_id bigint, job_id bigint) where outbox_id = any (v_new)));

    with given as materialized (
        select g.*, decode(g.key_hex, 'hex') as key, p.queue_id, q.is_owned, m.epoch as map_epoch,
               coalesce(
                   -- What else of its key came from there and is here: they stay together.
                   (select o.partition_id from @schema@.map_guest as o
                     where o.queue_id = q.id and o.epoch = g.epoch and o.key = decode(g.key_hex, 'hex') limit 1),
                   case when q.is_owned and g.key_hex is not null or exists (
                             select from @schema@.partition as c where c.id = any (m.partition_ids) and c.shard = @schema@.here())
                        then @schema@.partition_for_key(m.partition_ids, case when q.is_owned then decode(g.key_hex, 'hex') end, g.partition_id)
                        else m.partition_ids[1 + (g.job_id >> 20) % m.partitions] end) as target_id
          from json_to_recordset(p_jobs)
               as g(outbox_id bigint, job_id bigint, attempt smallint, enqueued_at timestamptz, partition_id int,
                    priority smallint, task text, key_hex text, args text, attributes text, failures json, edits json, facts json,
                    epoch int, load json)
          join @schema@.partition as p on p.id = g.partition_id
          join @schema@.queue as q on q.id = p.queue_id
          join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = q.id
          join @schema@.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
         where g.outbox_id = any (v_new) order by g.outbox_id
    ), stored as (
        insert into @schema@.job_kept (id, enqueued_at, partition_id, priority, task, key, args, attributes)
        select job_id, enqueued_at, partition_id, priority, task, key, args::json, attributes::jsonb from given
        -- Locked: whoever drops kept jobs that nobody needs passes over it.
        on conflict (id) do update set args = excluded.args
    ), failures as (
        insert into @schema@.failure (job_id, attempt, at, worker, error)
        select g.job_id, f.attempt, f.at, f.worker, f.error
          from given as g
         cross join lateral json_to_recordset(g.failures) as f(attempt smallint, at timestamptz, worker text, error text)
         where not exists (select from @schema@.failure as o where o.job_id = g.job_id and o.attempt = f.attempt and o.at = f.at)
    ), edits as (
        insert into @schema@.edit (job_id, at, edited_by, args)
        select g.job_id, e.at, e.edited_by, e.args::json
          from given as g
         cross join lateral json_to_recordset(g.edits) as e(at timestamptz, edited_by text, args text)
         where not exists (select from @schema@.edit as o where o.job_id = g.job_id and o.at = e.at)
    ), back as (
        delete from @schema@.forward where job_id in (select job_id from given)
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt, facts, epoch)
        select t.shard, g.job_id, g.target_id, g.attempt, g.facts, g.epoch
          from given as g join @schema@.partition as t on t.id = g.target_id and t.shard <> @schema@.here() order by g.outbox_id
        returning job_id
    ), here as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, changed, epoch, task)
        select target_id, priority, @schema@.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, attempt,
               case when is_owned then pg_current_xact_id() end, case when is_owned then map_epoch end,
               case when is_owned then '' else task end
          from given where facts is null and job_id not in (select job_id from sent) order by outbox_id
    ), counted as (
        insert into @schema@.tally (partition_id, opened)
        select target_id, count(*) from given where facts is null or job_id in (select job_id from sent) group by target_id
    ), other as (
        select json_agg(json_build_object(
                   'job_id', g.job_id, 'attempt', g.attempt, 'priority', g.priority, 'task', g.task, 'key_hex', g.key_hex,
                   'facts', g.facts, 'epoch', g.epoch, 'queue_id', g.queue_id, 'is_owned', g.is_owned,
                   'map_epoch', g.map_epoch, 'target_id', g.target_id) order by g.outbox_id) as jobs
          from given as g where facts is not null and job_id not in (select job_id from sent)
    ), loads as (
        select json_agg(distinct jsonb_build_object(
                   'range', g.job_id / 1024, 'queue_id', g.queue_id, 'target_id', g.target_id, 'priority', g.priority,
                   'task', g.task, 'load', g.load::jsonb)) as ranges
          from given as g where g.load is not null
    )
    select (select count(@schema@.wake(queue_id)) from (select distinct queue_id from given) as q),
           (select jobs from other), (select ranges from loads)
      into v_count, v_others, v_loads;
    if v_others is not null then
        perform @schema@.take_as_they_were(v_others);
    end if;
    if v_loads is not null then
        perform @schema@.take_load_ranges(v_loads);
    end if;
    if (select count(*) from json_to_recordset(p_jobs) as g(partition_id int)
          left join @schema@.partition as p on p.id = g.partition_id where p.id is null) > 0 then
        raise exception using errcode = '55P03', message = 'this shard has not learned of a partition yet: carry it later';
    end if;
end $$;
