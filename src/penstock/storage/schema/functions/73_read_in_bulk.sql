-- Reading in bulk: jobs are taken by intervals of range numbers, each with one statement and so in one snapshot: a job
-- may move from table to table while they read, but never out of its range, so it is met once. Slices of history are read
-- by their names, whether they are attached or on their way out.

-- The rows of history of ranges [p_low, p_high): of slice p_only, or of all slices but p_cold. Slices of p_hot, and
-- those that came after them, must be among them: which are gone is told by an error, for the caller to look elsewhere.
create or replace function @schema@.finished_rows(p_low bigint, p_high bigint, p_only int, p_hot int[], p_cold int[])
returns table (
    range bigint, partition_id int, outcome smallint, attempt smallint, finished_at timestamptz, worker text,
    positions smallint[], start_ages bigint[], run_times bigint[], results json[], errors text[], reason text)
language plpgsql stable rows 1000 set search_path = pg_catalog, pg_temp as $$
declare
    v_slice int;
    v_gone  text;
begin
    select string_agg(n::text, ',') into v_gone
      from (select unnest(p_hot) as n
            union
            select generate_series((select max(h) from unnest(p_hot) as h) + 1, @schema@.current_slice())) as expected
     where n <> all (p_cold) and not exists (select from @schema@.slice where number = n);
    if v_gone is not null then
        raise exception using errcode = 'PS001', message = format('slices of history are gone: %s;', v_gone);
    end if;
    for v_slice in
        select number from @schema@.slice
         where used_from is not null and (number = p_only or p_only is null and number <> all (p_cold)) order by number
    loop
        begin
            return query execute format('select range, partition_id, outcome, attempt, finished_at, worker, positions, start_ages, run_times, results, errors, reason
                      from @schema@.finished_%s where range >= $1 and range < $2', v_slice)
                using p_low, p_high;
        exception when undefined_table then
            raise exception using errcode = 'PS001', message = format('slices of history are gone: %s;', v_slice);
        end;
    end loop;
end $$;

-- The jobs of ranges [p_low, p_high), each once.
create or replace function @schema@.jobs_between(p_low bigint, p_high bigint) returns table (
    id bigint, enqueued_at timestamptz, partition_id int, priority smallint, task text, key bytea, args json, attributes jsonb)
language sql stable
begin atomic
    select j.id, j.enqueued_at, j.partition_id, j.priority, j.task, j.key, j.args, j.attributes
      from @schema@.job as j where j.id >= p_low * 1024 and j.id < p_high * 1024
    union all
    select k.id, k.enqueued_at, k.partition_id, k.priority, k.task, k.key, k.args, k.attributes from @schema@.job_kept as k
     where k.id >= p_low * 1024 and k.id < p_high * 1024 and not exists (select from @schema@.job as j where j.id = k.id);
end;

-- History, a row a job, as `app.job` tells it. Inlined where it is used: a column nobody reads is not computed, and a
-- condition is met as early as can be. settled_at is no earlier than finished_at, and known before a row is unfolded.
create or replace function @schema@.history_between(p_low bigint, p_high bigint, p_only int, p_hot int[], p_cold int[])
returns table (
    id bigint, queue text, partition text, task text, args text, key bytea, tenant text, load text, outcome text,
    attempt int, result text, error text, enqueued_at timestamptz, started_at timestamptz, finished_at timestamptz,
    worker text, priority int, attributes text, failures text, day date, settled_at timestamptz)
language sql stable
begin atomic
    select e.id, q.name, p.name, j.task, j.args::text, j.key, j.attributes ->> 'tenant', l.name,
           case e.outcome when 0 then 'succeeded' when 1 then 'failed' when 2 then 'cancelled' when 3 then 'discarded'
                          else 'expired' end,
           e.attempt - (e.started_at is null and e.outcome > 1)::int, e.result::text,
           coalesce(e.error, case when e.outcome > 0 then x.error end), j.enqueued_at, e.started_at, e.finished_at,
           coalesce(e.worker, case when e.outcome > 0 then x.worker end), j.priority::int,
           case when c.edits is null then j.attributes::text
                else (coalesce(j.attributes, '{}') || jsonb_build_object('edits', c.edits))::text end,
           x.failures, (e.finished_at at time zone 'UTC')::date, e.settled_at
      from (select f.range * 1024 + u.position as id, f.partition_id, f.outcome, f.attempt,
                   f.finished_at - u.start_age * interval '1 microsecond' as started_at,
                   f.finished_at - greatest(0, u.start_age - u.run_time) * interval '1 microsecond' as finished_at,
                   f.worker, u.result, coalesce(u.error, f.reason) as error, f.finished_at as settled_at
              from @schema@.finished_rows(p_low, p_high, p_only, p_hot, p_cold) as f,
                   unnest(f.positions, f.start_ages, f.run_times, f.results, f.errors)
                       as u(position, start_age, run_time, result, error)
            union all
            select d.job_id, d.partition_id, 1::smallint, d.attempt, d.started_at, d.failed_at, d.worker, null, d.error,
                   d.failed_at
              from @schema@.dead as d
             where d.job_id >= p_low * 1024 and d.job_id < p_high * 1024 and p_only is null
            union all
            -- Cancelled for now. Like a dead letter it is in no slice, and so in no lake.
            select b.job_id, b.partition_id, 2::smallint, 1::smallint, null, b.cancelled_at, null, null,
                   @schema@.why_cancelled(b.parents), b.cancelled_at
              from @schema@.blocked as b
             where b.job_id >= p_low * 1024 and b.job_id < p_high * 1024 and b.cancelled_at is not null and p_only is null) as e
      join @schema@.jobs_between(p_low, p_high) as j on j.id = e.id
      join @schema@.partition as p on p.id = e.partition_id
      join @schema@.queue as q on q.id = p.queue_id
      left join @schema@.load_range as r on r.range = e.id / 1024
      left join @schema@.load as l on l.id = r.load_id
      left join (
           select f.job_id, (array_agg(f.error order by f.attempt desc, f.at desc))[1] as error,
                  (array_agg(f.worker order by f.attempt desc, f.at desc))[1] as worker,
                  json_agg(json_build_object('attempt', f.attempt, 'error', f.error, 'at', f.at, 'worker', f.worker)
                           order by f.attempt, f.at)::text as failures
             from @schema@.failure as f where f.job_id >= p_low * 1024 and f.job_id < p_high * 1024
            group by f.job_id) as x on x.job_id = e.id
      left join (
           -- As text: jsonb does not take all that json takes.
           select e.job_id, jsonb_agg(jsonb_build_object('at', e.at, 'edited_by', e.edited_by, 'args', e.args::text) order by e.at) as edits
             from @schema@.edit as e where e.job_id >= p_low * 1024 and e.job_id < p_high * 1024
            group by e.job_id) as c on c.job_id = e.id;
end;

-- A time as a whole number, exact to the microsecond for some thousand years.
create or replace function @schema@.microseconds(at timestamptz) returns bigint
language sql stable parallel safe
return round(date_part('epoch', at) * 1000000)::bigint;

-- Count and checksum of a slice's jobs of ranges [p_low, p_high), over all that a lake holds of them: the xor of the
-- first 64 bits of each job's SHA-256. `penstock.spark.lake` computes the same from files.
create or replace function @schema@.checksum_slice(p_slice int, p_low bigint, p_high bigint, out jobs bigint, out checksum bigint)
language sql stable
begin atomic
    select count(*), coalesce(bit_xor(('x' || encode(substr(sha256(convert_to(concat_ws(e'\x1f',
               id, queue, partition, task, args, coalesce(encode(key, 'hex'), e'\x1e'), coalesce(tenant, e'\x1e'),
               coalesce(load, e'\x1e'), outcome, attempt, coalesce(result, e'\x1e'), coalesce(error, e'\x1e'),
               @schema@.microseconds(enqueued_at), coalesce(@schema@.microseconds(started_at)::text, e'\x1e'),
               @schema@.microseconds(finished_at), coalesce(worker, e'\x1e'), priority, coalesce(attributes, e'\x1e'),
               coalesce(failures, e'\x1e')), 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint), 0)
      from @schema@.history_between(p_low, p_high, p_slice, '{}', '{}');
end;

-- What has not ended, a row a job, with its state.
create or replace function @schema@.waiting_between(p_low bigint, p_high bigint)
returns table (
    id bigint, queue text, partition text, task text, args text, key bytea, tenant text, load text, state text,
    attempt int, priority int, enqueued_at timestamptz, run_at timestamptz, started_at timestamptz, worker text)
language sql stable
begin atomic
    select w.id, q.name, p.name, j.task, j.args::text, j.key, j.attributes ->> 'tenant', l.name, w.state,
           w.attempt - (w.started_at is null)::int, j.priority::int, j.enqueued_at, w.run_at, w.started_at, w.worker
      from (select r.range * 1024 + m as id, r.partition_id, 'ready' as state, r.attempt::int, null::timestamptz as run_at,
                   null::timestamptz as started_at, null::text as worker
              from @schema@.ready as r, unnest(@schema@.positions(r.low, r.high, r.members)) as m
             where r.range >= p_low and r.range < p_high
            union all
            select l.range * 1024 + m, l.partition_id, 'running', l.attempt, null, l.claimed_at,
                   coalesce((select w.name from @schema@.worker as w where w.id = l.worker_id), 'worker ' || l.worker_id)
              from @schema@.lease as l, unnest(@schema@.positions(l.low, l.high, l.members)) as m
             where l.range >= p_low and l.range < p_high
            union all
            select s.range * 1024 + m, s.partition_id, 'scheduled', s.attempt,
                   case when s.due_at < @schema@.paused_from() then s.due_at end, null, null
              from @schema@.scheduled as s, unnest(@schema@.positions(s.low, s.high, s.members)) as m
             where s.range >= p_low and s.range < p_high
            union all
            select b.job_id, b.partition_id, 'blocked', 1, b.run_at, null, null
              from @schema@.blocked as b where b.job_id >= p_low * 1024 and b.job_id < p_high * 1024 and b.cancelled_at is null
            union all
            -- On its way to another shard.
            select o.job_id, o.partition_id, 'ready', o.attempt, null, null, null
              from @schema@.outbox as o where o.job_id >= p_low * 1024 and o.job_id < p_high * 1024) as w
      join @schema@.jobs_between(p_low, p_high) as j on j.id = w.id
      join @schema@.partition as p on p.id = w.partition_id
      join @schema@.queue as q on q.id = p.queue_id
      left join @schema@.load_range as r on r.range = w.id / 1024
      left join @schema@.load as l on l.id = r.load_id;
end;

create or replace function @schema@.failures_between(p_low bigint, p_high bigint)
returns table (id bigint, attempt int, error text, at timestamptz, worker text)
language sql stable
begin atomic
    select f.job_id, f.attempt::int, f.error, f.at, f.worker from @schema@.failure as f
     where f.job_id >= p_low * 1024 and f.job_id < p_high * 1024
       -- Told by the shard the job went to.
       and not exists (select from @schema@.forward as w where w.job_id = f.job_id);
end;
