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
language sql as
$$ select pg_try_advisory_xact_lock(hashtext('penstock.carry')) $$;

-- The next jobs for a shard, in the order they were sent, with all that belongs to them. Index: outbox_by_shard.
create function penstock.read_outbox(p_shard int, p_limit int) returns json
language sql stable set enable_seqscan = off as $$
    select json_agg(json_build_object(
               'outbox_id', o.id, 'job_id', o.job_id, 'attempt', o.attempt, 'enqueued_at', j.enqueued_at,
               'partition_id', j.partition_id, 'priority', j.priority, 'task', j.task, 'key_hex', encode(j.key, 'hex'),
               'args', j.args::text, 'attributes', j.attributes::text,
               'failures', (select json_agg(json_build_object('attempt', f.attempt, 'at', f.at, 'worker', f.worker, 'error', f.error))
                              from penstock.failure as f where f.job_id = o.job_id)) order by o.id)
      from (select * from penstock.outbox where shard = p_shard order by id limit p_limit) as o
     cross join lateral (select * from penstock.job_stored where id = o.job_id limit 1) as j
$$;

-- Makes jobs of another shard's outbox ready here, once each, in their order; or sends them on where their key has moved
-- again. p_as_of: this shard's time before the outbox was read. Whoever asked long ago may have lost its hold on it to
-- another, and the arrival be forgotten since (after a day at least): it has to read anew. Locks: arrivals, the queues'
-- maps (shared).
create function penstock.take_arrivals(p_from int, p_as_of timestamptz, p_jobs json) returns void
language plpgsql set enable_seqscan = off as $$
declare
    v_new    bigint[];
    v_queues int[];
    v_epochs int[];
    v_count  int;
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

    with given as materialized (
        select g.*, decode(g.key_hex, 'hex') as key, p.queue_id, q.is_owned, m.epoch,
               penstock.place_by(m.partition_ids, case when q.is_owned then decode(g.key_hex, 'hex') end, g.partition_id) as place
          from json_to_recordset(p_jobs)
               as g(outbox_id bigint, job_id bigint, attempt smallint, enqueued_at timestamptz, partition_id int,
                    priority smallint, task text, key_hex text, args text, attributes text, failures json)
          join penstock.partition as p on p.id = g.partition_id
          join penstock.queue as q on q.id = p.queue_id
          join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = q.id
          join penstock.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
         where g.outbox_id = any (v_new) order by g.outbox_id
    ), stored as (
        insert into penstock.job_kept (id, enqueued_at, partition_id, priority, task, key, args, attributes)
        select job_id, enqueued_at, partition_id, priority, task, key, args::json, attributes::jsonb from given
         where not exists (select from penstock.job as j where j.id = given.job_id)
        on conflict do nothing
    ), failures as (
        insert into penstock.failure (job_id, attempt, at, worker, error)
        select g.job_id, f.attempt, f.at, f.worker, f.error
          from given as g
         cross join lateral json_to_recordset(g.failures) as f(attempt smallint, at timestamptz, worker text, error text)
         where not exists (select from penstock.failure as o where o.job_id = g.job_id and o.attempt = f.attempt and o.at = f.at)
    ), back as (
        delete from penstock.forward where job_id in (select job_id from given)
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt)
        select t.shard, g.job_id, g.place, g.attempt
          from given as g join penstock.partition as t on t.id = g.place and t.shard <> penstock.here() order by g.outbox_id
        returning job_id
    ), here as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, changed, epoch, task)
        select place, priority, penstock.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, attempt,
               case when is_owned then pg_current_xact_id() end, case when is_owned then epoch end,
               case when is_owned then '' else task end
          from given where job_id not in (select job_id from sent) order by outbox_id
    ), counted as (
        insert into penstock.tally (partition_id, opened) select place, count(*) from given group by place
    )
    select count(penstock.wake(queue_id)) into v_count from (select distinct queue_id from given) as q;
    if (select count(*) from json_to_recordset(p_jobs) as g(partition_id int)
          left join penstock.partition as p on p.id = g.partition_id where p.id is null) > 0 then
        raise exception using errcode = '55P03', message = 'this shard has not learned of a partition yet: carry it later';
    end if;
end $$;

-- Lets jobs go that have arrived on another shard, and remembers where they went. One that came back since is here.
-- Their children have to ask elsewhere for how they end; those that were being written just then are met by
-- penstock.ask_elsewhere.
create function penstock.depart(p_ids bigint[]) returns void
language sql as $$
    with gone as (
        delete from penstock.outbox where id = any (p_ids) returning job_id, shard, partition_id
    ), told as (
        insert into penstock.forward (job_id, shard) select job_id, shard from gone where not penstock.is_here(job_id)
        on conflict (job_id) do update set shard = excluded.shard, at = now()
    ), children as (
        update penstock.dependency set is_elsewhere = true where parent_id in (select job_id from gone) and not is_elsewhere
    )
    insert into penstock.tally (partition_id, opened) select partition_id, -count(*) from gone group by partition_id
$$;

-- Has children ask elsewhere for parents that went.
create function penstock.ask_elsewhere() returns void
language sql as $$
    update penstock.dependency as d set is_elsewhere = true
      from penstock.forward as f where d.parent_id = f.job_id and not d.is_elsewhere
$$;

-- The shard to ask for a job: this one if it is here or on its way from here, else where it went; null: not known.
create function penstock.whereabouts(p_job bigint) returns smallint
language sql stable as $$
    select case when penstock.is_here(p_job) or exists (select from penstock.outbox where job_id = p_job) then penstock.here()
                else (select shard from penstock.forward where job_id = p_job) end
$$;

select penstock.renew_grants();
