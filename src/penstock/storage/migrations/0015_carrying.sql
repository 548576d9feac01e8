-- breaking: no
-- Carrying: a job that becomes ready takes its place by the map of now, and by that its key may live on another shard. It
-- is then sent: the transaction that would have made it ready writes it to `outbox` instead. Whoever carries writes it to
-- the other shard, where it becomes ready, and then lets it depart. A job enters its key's order when it becomes
-- ready, so in the order of their arrival.
--
-- Killed in between it is written again, and found to have arrived already: by the number it had in the outbox, which
-- is kept for longer than anybody can be on the way with it. One carries at a time from each shard, and holds what it
-- carries; whoever lost that hold without knowing is found by the time at which it asked (see penstock.take_arrivals).

-- Holds what is to be carried from here until the transaction ends; false where somebody does.
create function penstock.begin_carrying() returns boolean
language sql
return pg_try_advisory_xact_lock(hashtext('penstock.carry'));

-- The load of a job and its range, for another shard.
create function penstock.load_facts(p_job bigint) returns json
language sql stable
begin atomic
    select json_build_object('name', l.name, 'is_stream', l.is_stream, 'origin', l.origin, 'is_paused', l.is_paused,
                             'cancelled_at', l.cancelled_at, 'created_at', l.created_at, 'size', r.size)
      from penstock.load_range as r join penstock.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;

-- The next jobs for a shard, in the order they were sent, with all that belongs to them. Index: outbox_by_shard.
create function penstock.read_outbox(p_shard int, p_limit int) returns json
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select json_agg(json_build_object(
               'outbox_id', o.id, 'job_id', o.job_id, 'attempt', o.attempt, 'facts', o.facts, 'epoch', o.epoch,
               'load', penstock.load_facts(o.job_id), 'enqueued_at', j.enqueued_at,
               'partition_id', j.partition_id, 'priority', j.priority, 'task', j.task, 'key_hex', encode(j.key, 'hex'),
               'args', j.args::text, 'attributes', j.attributes::text,
               'failures', (select json_agg(json_build_object('attempt', f.attempt, 'at', f.at, 'worker', f.worker, 'error', f.error))
                              from penstock.failure as f where f.job_id = o.job_id)) order by o.id)
      from (select * from penstock.outbox where shard = p_shard order by id limit p_limit) as o
     cross join lateral (select * from penstock.job_stored where id = o.job_id limit 1) as j
$$;

-- Sets aside what could not be read of the next jobs for a shard: they are in no table of jobs. Index: outbox_by_shard.
create function penstock.set_aside_unsent(p_shard int, p_limit int) returns setof bigint
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    with next as materialized (
        select id, job_id from penstock.outbox where shard = p_shard order by id limit p_limit
    ), gone as (
        delete from penstock.outbox as o using next as n
         where o.id = n.id and not exists (select from penstock.job_stored as j where j.id = n.job_id)
        returning o.job_id, o.partition_id, o.attempt
    )
    insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, is_parked, reason, task)
    select g.partition_id, 5, penstock.draw_range(), g.job_id / 1024, g.job_id % 1024, g.job_id % 1024 + 1, g.attempt, true,
           penstock.not_stored(), ''
      from gone as g
    returning range * 1024 + low
$$;

-- Whether nobody writes here by these earlier maps, the lists parallel: only then what is left of them is told to other
-- shards.
create function penstock.are_closed(p_queues int[], p_epochs int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.open_maps(p_queues, p_epochs)) then
        perform penstock.close_maps();
    end if;
    return not exists (select from penstock.open_maps(p_queues, p_epochs));
end $$;

-- Those of these maps, the lists parallel, that somebody may still write by.
create function penstock.open_maps(p_queues int[], p_epochs int[]) returns table (queue_id int, epoch int)
language sql stable
begin atomic
    select m.queue_id, m.epoch from unnest(p_queues, p_epochs) as g(queue_id, epoch)
      join penstock.queue_map as m on m.queue_id = g.queue_id and m.epoch = g.epoch
     where not m.is_closed;
end;

-- The position of a job that was ready on another shard before it came here: before all that are here, which were enqueued
-- later, in the order they had. No shard draws so many.
create function penstock.before(p_pos bigint) returns bigint
language sql immutable parallel safe
return p_pos - (1::bigint << 53);

-- Takes up jobs as they were on a shard that is being drained: ready in their place, waiting for a time or for other jobs,
-- dead letters, and the halt of a key. What its key waits for is waited for here from now on, by the map it was routed by.
create function penstock.take_as_they_were(p_jobs json) returns void
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    with given as materialized (
        select g.*, decode(g.key_hex, 'hex') as key, g.facts ->> 'state' as state,
               case when g.epoch is not null then g.epoch when g.is_owned then g.map_epoch end as kept_epoch,
               case when g.is_owned then '' else g.task end as range_task, f.*
          from json_to_recordset(p_jobs)
               as g(job_id bigint, attempt smallint, priority smallint, task text, key_hex text, facts json, epoch int,
                    queue_id int, is_owned boolean, map_epoch int, place int)
         cross join lateral json_to_record(g.facts)
               as f(pos bigint, rescues smallint, ready_at timestamptz, due_at timestamptz, run_at timestamptz,
                    runs_on_failure boolean, parents json, ends json, started_at timestamptz, failed_at timestamptz,
                    worker text, error text, halted_at timestamptz)
    ), readies as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at,
                                    changed, epoch, task)
        select place, priority, case when is_owned then pos else penstock.before(pos) end, job_id / 1024,
               min(job_id % 1024), max(job_id % 1024) + 1,
               case when count(*) <= max(job_id % 1024) - min(job_id % 1024) then bit_or(penstock.single((job_id % 1024)::int)) end,
               attempt, rescues, ready_at, case when is_owned then pg_current_xact_id() end, kept_epoch, range_task
          from given where state = 'ready'
         group by place, priority, pos, job_id / 1024, attempt, rescues, ready_at, is_owned, kept_epoch, range_task
    ), later as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, members, attempt, rescues, pos,
                                        epoch, task)
        select due_at, place, priority, job_id / 1024, min(job_id % 1024), max(job_id % 1024) + 1,
               case when count(*) <= max(job_id % 1024) - min(job_id % 1024) then bit_or(penstock.single((job_id % 1024)::int)) end,
               attempt, rescues, pos, case when pos is not null then kept_epoch end, range_task
          from given where state = 'scheduled'
         group by place, priority, pos, job_id / 1024, attempt, rescues, due_at, kept_epoch, range_task
    ), children as (
        insert into penstock.blocked (job_id, partition_id, priority, task, run_at, runs_on_failure, parents)
        select job_id, place, priority, task, run_at, runs_on_failure,
               array(select value::bigint from json_array_elements_text(parents))
          from given where state = 'blocked'
    ), edges as (
        insert into penstock.dependency (parent_id, child_id, is_elsewhere)
        select distinct p.value::bigint, g.job_id, not penstock.is_here(p.value::bigint)
          from given as g cross join lateral json_array_elements_text(g.parents) as p where g.state = 'blocked'
        on conflict do nothing
    ), ends as (
        insert into penstock.parent_end (job_id, has_succeeded)
        select distinct on (1) e.key::bigint, e.value::boolean
          from given as g cross join lateral json_each_text(g.ends) as e where g.state = 'blocked'
        on conflict do nothing
    ), dead_letters as (
        insert into penstock.dead (job_id, partition_id, task, attempt, started_at, failed_at, worker, error)
        select job_id, place, task, attempt, started_at, failed_at, worker, error from given where state = 'dead'
    ), halts as (
        insert into penstock.halted (queue_id, key, job_id, epoch, since)
        select queue_id, key, job_id, epoch, halted_at from given where halted_at is not null
        on conflict do nothing
    ), guests as (
        insert into penstock.map_guest (queue_id, epoch, key, job_id, partition_id)
        select queue_id, epoch, key, job_id, place from given where epoch is not null and key is not null
        on conflict do nothing
    )
    insert into penstock.tally (partition_id, opened, scheduled, blocked, dead)
    select place, count(*) filter (where state = 'ready'), count(*) filter (where state = 'scheduled'),
           count(*) filter (where state = 'blocked'), count(*) filter (where state = 'dead')
      from given group by place
$$;

-- Enters the ranges of jobs that came here under their load. Locks: the loads' names.
create function penstock.take_load_ranges(p_ranges json) returns void
language sql
begin atomic
    insert into penstock.load (name, queue_id, is_stream, origin, is_paused, cancelled_at, created_at)
    select distinct on (l.name) l.name, g.queue_id, l.is_stream, l.origin, l.is_paused, l.cancelled_at, l.created_at
      from json_to_recordset(p_ranges) as g(queue_id int, load json)
     cross join lateral json_to_record(g.load)
           as l(name text, is_stream boolean, origin text, is_paused boolean, cancelled_at timestamptz, created_at timestamptz)
     order by l.name
    on conflict do nothing;
    insert into penstock.load_range (range, stage, load_id, size, partition_id, priority, has_once, task)
    select distinct on (g.range) g.range, '', n.id, (g.load ->> 'size')::smallint, g.place, g.priority, false, g.task
      from json_to_recordset(p_ranges) as g(range bigint, place int, priority smallint, task text, load json)
      join penstock.load as n on n.name = g.load ->> 'name'
     order by g.range
    on conflict do nothing;
end;

-- Makes jobs of another shard's outbox ready here, once each, in their order, or what they were, where that shard is
-- being drained (penstock.take_as_they_were); or sends them on where their key has moved again. p_as_of: this shard's time
-- before the outbox was read. Whoever asked long ago may have lost its hold on it to another, and the arrival be forgotten
-- since (after a day at least): it has to read anew. Locks: arrivals, the queues' maps (shared).
create function penstock.take_arrivals(p_from int, p_as_of timestamptz, p_jobs json) returns void
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
        insert into penstock.arrival (shard, outbox_id)
        select p_from, outbox_id from json_to_recordset(p_jobs) as g(outbox_id bigint) order by outbox_id
        on conflict do nothing returning outbox_id
    )
    select array_agg(outbox_id) into v_new from new;
    v_queues := array(select distinct p.queue_id
                        from json_to_recordset(p_jobs) as g(outbox_id bigint, partition_id int)
                        join penstock.partition as p on p.id = g.partition_id where g.outbox_id = any (v_new));
    v_epochs := array(select penstock.hold_map(q) from unnest(v_queues) as q);
    if not (select penstock.are_closed(array_agg(w.queue_id), array_agg(w.epoch))
              from (select distinct p.queue_id, g.epoch
                      from json_to_recordset(p_jobs) as g(outbox_id bigint, partition_id int, epoch int)
                      join penstock.partition as p on p.id = g.partition_id
                     where g.outbox_id = any (v_new) and g.epoch is not null) as w) then
        raise exception using errcode = '55P03', message = 'somebody writes by an earlier map here: carry it later';
    end if;

    -- One that was here before may lie in a table of jobs that prune lets go, since nobody wanted it here: it is kept
    -- from now on, and in one place.
    delete from penstock.job where id = any (array(
        select job_id from json_to_recordset(p_jobs) as g(outbox_id bigint, job_id bigint) where outbox_id = any (v_new)));

    with given as materialized (
        select g.*, decode(g.key_hex, 'hex') as key, p.queue_id, q.is_owned, m.epoch as map_epoch,
               coalesce(
                   -- What else of its key came from there and is here: they stay together.
                   (select o.partition_id from penstock.map_guest as o
                     where o.queue_id = q.id and o.epoch = g.epoch and o.key = decode(g.key_hex, 'hex') limit 1),
                   case when q.is_owned and g.key_hex is not null or exists (
                             select from penstock.partition as c where c.id = any (m.partition_ids) and c.shard = penstock.here())
                        then penstock.place_by(m.partition_ids, case when q.is_owned then decode(g.key_hex, 'hex') end, g.partition_id)
                        else m.partition_ids[1 + (g.job_id >> 20) % m.partitions] end) as place
          from json_to_recordset(p_jobs)
               as g(outbox_id bigint, job_id bigint, attempt smallint, enqueued_at timestamptz, partition_id int,
                    priority smallint, task text, key_hex text, args text, attributes text, failures json, facts json,
                    epoch int, load json)
          join penstock.partition as p on p.id = g.partition_id
          join penstock.queue as q on q.id = p.queue_id
          join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = q.id
          join penstock.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
         where g.outbox_id = any (v_new) order by g.outbox_id
    ), stored as (
        insert into penstock.job_kept (id, enqueued_at, partition_id, priority, task, key, args, attributes)
        select job_id, enqueued_at, partition_id, priority, task, key, args::json, attributes::jsonb from given
        -- Locked: whoever drops kept jobs that nobody needs passes over it.
        on conflict (id) do update set args = excluded.args
    ), failures as (
        insert into penstock.failure (job_id, attempt, at, worker, error)
        select g.job_id, f.attempt, f.at, f.worker, f.error
          from given as g
         cross join lateral json_to_recordset(g.failures) as f(attempt smallint, at timestamptz, worker text, error text)
         where not exists (select from penstock.failure as o where o.job_id = g.job_id and o.attempt = f.attempt and o.at = f.at)
    ), back as (
        delete from penstock.forward where job_id in (select job_id from given)
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt, facts, epoch)
        select t.shard, g.job_id, g.place, g.attempt, g.facts, g.epoch
          from given as g join penstock.partition as t on t.id = g.place and t.shard <> penstock.here() order by g.outbox_id
        returning job_id
    ), here as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, changed, epoch, task)
        select place, priority, penstock.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, attempt,
               case when is_owned then pg_current_xact_id() end, case when is_owned then map_epoch end,
               case when is_owned then '' else task end
          from given where facts is null and job_id not in (select job_id from sent) order by outbox_id
    ), counted as (
        insert into penstock.tally (partition_id, opened)
        select place, count(*) from given where facts is null or job_id in (select job_id from sent) group by place
    ), other as (
        select json_agg(json_build_object(
                   'job_id', g.job_id, 'attempt', g.attempt, 'priority', g.priority, 'task', g.task, 'key_hex', g.key_hex,
                   'facts', g.facts, 'epoch', g.epoch, 'queue_id', g.queue_id, 'is_owned', g.is_owned,
                   'map_epoch', g.map_epoch, 'place', g.place) order by g.outbox_id) as jobs
          from given as g where facts is not null and job_id not in (select job_id from sent)
    ), loads as (
        select json_agg(distinct jsonb_build_object(
                   'range', g.job_id / 1024, 'queue_id', g.queue_id, 'place', g.place, 'priority', g.priority,
                   'task', g.task, 'load', g.load::jsonb)) as ranges
          from given as g where g.load is not null
    )
    select (select count(penstock.wake(queue_id)) from (select distinct queue_id from given) as q),
           (select jobs from other), (select ranges from loads)
      into v_count, v_others, v_loads;
    if v_others is not null then
        perform penstock.take_as_they_were(v_others);
    end if;
    if v_loads is not null then
        perform penstock.take_load_ranges(v_loads);
    end if;
    if (select count(*) from json_to_recordset(p_jobs) as g(partition_id int)
          left join penstock.partition as p on p.id = g.partition_id where p.id is null) > 0 then
        raise exception using errcode = '55P03', message = 'this shard has not learned of a partition yet: carry it later';
    end if;
end $$;

-- Lets jobs go that have arrived on another shard, and remembers where they went. One that came back since is here.
-- Their children have to ask elsewhere for how they end; those that were being written just then are met by
-- penstock.ask_elsewhere.
create function penstock.depart(p_ids bigint[]) returns void
language sql
begin atomic
    with gone as (
        delete from penstock.outbox where id = any (p_ids) returning job_id, shard, partition_id
    ), told as (
        insert into penstock.forward (job_id, shard) select job_id, shard from gone where not penstock.is_here(job_id)
        on conflict (job_id) do update set shard = excluded.shard, at = now()
    ), children as (
        update penstock.dependency set is_elsewhere = true where parent_id in (select job_id from gone) and not is_elsewhere
    )
    insert into penstock.tally (partition_id, opened) select partition_id, -count(*) from gone group by partition_id;
end;

-- Has children ask elsewhere for parents that went.
create function penstock.ask_elsewhere() returns void
language sql
begin atomic
    update penstock.dependency as d set is_elsewhere = true
      from penstock.forward as f where d.parent_id = f.job_id and not d.is_elsewhere;
end;

-- The shard to ask for a job: this one if it is here or on its way from here, else where it went; null: not known.
create function penstock.whereabouts(p_job bigint) returns smallint
language sql stable
begin atomic
    select case when penstock.is_here(p_job) or exists (select from penstock.outbox where job_id = p_job) then penstock.here()
                else (select shard from penstock.forward where job_id = p_job) end;
end;

select penstock.renew_grants();
