-- Carrying: a job that becomes ready goes to a partition by the newest map, and by that its key may live on another
-- shard. It is then sent: the transaction that would have made it ready writes it to `outbox` instead. Whoever carries
-- writes it to the other shard, where it becomes ready, and then lets it depart. A job enters its key's order when it
-- becomes ready, so in the order of their arrival.
--
-- Killed in between it is written again, and found to have arrived already: by the number it had in the outbox, which
-- is kept for longer than anybody can be on the way with it. One carries at a time from each shard, and locks what it
-- carries; whoever lost that lock without knowing is found by the time at which it asked (see @schema@.take_arrivals).

-- Locks what is to be carried from here until the transaction ends; false where somebody does. What was sent to a shard
-- that is drained since goes another way (@schema@.redirect) before anything else is carried: it comes first. None of it
-- had arrived there: a shard is drained when nobody writes to it and nothing is on its way.
create or replace function @schema@.begin_carrying() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not pg_try_advisory_xact_lock(hashtext('@schema@.carry')) then
        return false;
    end if;
    perform @schema@.redirect(array(select id from @schema@.outbox where shard = any (@schema@.drained_shards())));
    return true;
end $$;

-- The load of a job and its range, for another shard.
create or replace function @schema@.load_facts(p_job bigint) returns json
language sql stable
begin atomic
    select json_build_object('name', l.name, 'is_stream', l.is_stream, 'origin', l.origin, 'is_paused', l.is_paused,
                             'cancelled_at', l.cancelled_at, 'created_at', l.created_at, 'trace', l.trace, 'size', r.size)
      from @schema@.load_range as r join @schema@.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;

-- The next jobs for a shard, in the order they were sent, with all that belongs to them. Index: outbox_by_shard.
create or replace function @schema@.read_outbox(p_shard int, p_limit int) returns json
language sql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    select json_agg(json_build_object(
               'outbox_id', o.id, 'job_id', o.job_id, 'attempt', o.attempt, 'facts', o.facts, 'epoch', o.epoch,
               'load', @schema@.load_facts(o.job_id), 'enqueued_at', j.enqueued_at,
               'partition_id', j.partition_id, 'priority', j.priority, 'task', j.task, 'key_hex', encode(j.key, 'hex'),
               'args', j.args::text, 'attributes', j.attributes::text,
               'failures', (select json_agg(json_build_object('attempt', f.attempt, 'at', f.at, 'worker', f.worker, 'error', f.error))
                              from @schema@.failure as f where f.job_id = o.job_id),
               'edits', (select json_agg(json_build_object('at', e.at, 'edited_by', e.edited_by, 'args', e.args::text))
                           from @schema@.edit as e where e.job_id = o.job_id)) order by o.id)
      from (select id, job_id, attempt, facts, epoch from @schema@.outbox where shard = p_shard order by id limit p_limit) as o
     cross join lateral (
           select enqueued_at, partition_id, priority, task, key, args, attributes
             from @schema@.job_stored where id = o.job_id limit 1) as j
$$;

-- Sets aside what could not be read of the next jobs for a shard: they are in no table of jobs. Index: outbox_by_shard.
create or replace function @schema@.set_aside_unsent(p_shard int, p_limit int) returns setof bigint
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    with next as materialized (
        select id, job_id from @schema@.outbox where shard = p_shard order by id limit p_limit
    ), gone as (
        delete from @schema@.outbox as o using next as n
         where o.id = n.id and not exists (select from @schema@.job_stored as j where j.id = n.job_id)
        returning o.job_id, o.partition_id, o.attempt
    )
    insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, is_parked, reason, task)
    select g.partition_id, 5, @schema@.draw_range(), g.job_id / 1024, g.job_id % 1024, g.job_id % 1024 + 1, g.attempt, true,
           @schema@.not_stored(), ''
      from gone as g
    returning range * 1024 + low
$$;

-- Lets jobs go that have arrived on another shard, and remembers where they went. One that came back since is here.
-- Their children have to ask elsewhere for how they end; those that were being written just then are met by
-- @schema@.ask_elsewhere.
create or replace function @schema@.depart(p_ids bigint[]) returns void
language sql
begin atomic
    with gone as (
        delete from @schema@.outbox where id = any (p_ids) returning job_id, shard, partition_id
    ), told as (
        insert into @schema@.forward (job_id, shard) select job_id, shard from gone where not @schema@.is_here(job_id)
        on conflict (job_id) do update set shard = excluded.shard, at = now()
    ), children as (
        update @schema@.dependency set is_elsewhere = true where parent_id in (select job_id from gone) and not is_elsewhere
    )
    insert into @schema@.tally (partition_id, opened) select partition_id, -count(*) from gone group by partition_id;
end;

-- Has children ask elsewhere for parents that went.
create or replace function @schema@.ask_elsewhere() returns void
language sql
begin atomic
    update @schema@.dependency as d set is_elsewhere = true
      from @schema@.forward as f where d.parent_id = f.job_id and not d.is_elsewhere;
end;

-- The shard to ask for a job: this one if it is here or on its way from here, else where it went; null: not known.
create or replace function @schema@.whereabouts(p_job bigint) returns smallint
language sql stable
begin atomic
    select case when @schema@.is_here(p_job) or exists (select from @schema@.outbox where job_id = p_job) then @schema@.here()
                else (select shard from @schema@.forward where job_id = p_job) end;
end;
