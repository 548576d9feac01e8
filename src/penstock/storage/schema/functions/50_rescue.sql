-- What dead workers held.

-- What leases held whose worker is gone is ready again, at the same `pos`, or a dead letter. The caller has locked them.
create or replace function @schema@.rescue_leases(p_leases bigint[], out jobs int, out dead int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_waiting bigint[];
begin
    with orphan as materialized (
        select l.id, l.worker_id, l.partition_id, l.priority, l.pos, l.range, l.low, l.high, l.members, l.attempt, l.rescues,
               l.is_ahead, l.ready_at, l.claimed_at, l.epoch, l.task, l.batch, p.queue_id, q.is_owned, q.halts_on_dead
          from @schema@.lease as l
          join @schema@.partition as p on p.id = l.partition_id join @schema@.queue as q on q.id = p.queue_id
         where l.id = any (p_leases)
    ), member as materialized (
        select o.*, m.pos as position, o.range * 1024 + m.pos as job_id, c.job_id is not null as is_cancelled, c.reason,
               j.key, coalesce(j.task, o.task) as job_task,
               case when o.is_ahead or o.batch is not null then 'suspect'
                    when o.attempt < coalesce(t.max_attempts, 25) then 'again' else 'dead' end as fate
          from orphan as o
         cross join lateral unnest(@schema@.positions(o.low, o.high, o.members)) as m(pos)
          left join lateral (select task, key from @schema@.job_stored where id = o.range * 1024 + m.pos and o.is_owned limit 1) as j on true
          left join @schema@.task as t on t.queue_id = o.queue_id and t.name = coalesce(j.task, o.task)
          left join @schema@.cancellation as c on c.job_id = o.range * 1024 + m.pos
    ), charged as (
        select job_id, partition_id, queue_id, job_task, attempt, claimed_at, fate, 'worker ' || worker_id as worker,
               'WorkerDied: worker ' || worker_id || ' ended or died while it held this job' as error
          from member where fate in ('again', 'dead') and not is_cancelled
    ), failed as materialized (
        select c.*, s.shape, @schema@.cause_of(c.queue_id, c.job_task, s.shape) as cause
          from charged as c cross join lateral (select @schema@.error_shape(c.error) as shape offset 0) as s
    ), attempts as (
        insert into @schema@.failure (job_id, attempt, worker, error) select job_id, attempt, worker, error from failed
    ), causes as (
        insert into @schema@.cause_tally (cause, queue_id, task, shape, failed, dead)
        select cause, queue_id, min(job_task), min(shape), count(*), count(*) filter (where fate = 'dead')
          from failed group by cause, queue_id
    ), again as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at,
                                    changed, epoch, task)
        select partition_id, priority, pos, range, min(position), max(position) + 1,
               case when count(*) <= max(position) - min(position) then bit_or(@schema@.single(position)) end,
               attempt + (fate = 'again')::int, least(rescues + 1, 2), ready_at,
               case when is_owned then pg_current_xact_id() end, epoch, task
          from member where fate in ('again', 'suspect') and not is_cancelled
         group by id, partition_id, priority, pos, range, attempt, fate, rescues, ready_at, is_owned, epoch, task
    ), dead_letters as (
        insert into @schema@.dead (job_id, partition_id, task, attempt, started_at, worker, error, cause)
        select job_id, partition_id, job_task, attempt, claimed_at, worker, error, cause from failed where fate = 'dead'
    ), halts as (
        insert into @schema@.halted (queue_id, key, job_id, epoch)
        select distinct on (queue_id, key) queue_id, key, job_id, epoch
          from member where fate = 'dead' and not is_cancelled and halts_on_dead and key is not null
         order by queue_id, key, job_id
        on conflict do nothing
    ), cancelled as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, errors)
        select @schema@.current_slice(), range, partition_id, 2, attempt, array_agg(position), array_agg(reason)
          from member where is_cancelled group by id, range, partition_id, attempt
    ), asks as (
        delete from @schema@.cancellation where job_id in (select job_id from member where is_cancelled)
    ), counted as (
        insert into @schema@.tally (partition_id, opened, dead, failed, cancelled)
        select partition_id, -count(*), count(*) filter (where not is_cancelled), count(*) filter (where not is_cancelled),
               count(*) filter (where is_cancelled)
          from member where is_cancelled or fate = 'dead' group by partition_id
    ), freed as (
        delete from @schema@.lease where id = any (p_leases)
    )
    select (select count(*) from member), (select count(*) from member where fate = 'dead' and not is_cancelled),
           -- Of what was charged nothing, no figure tells that it was leased.
           (select array_agg(job_id) from member where fate = 'suspect' and attempt = 1 and rescues < 0 and not is_cancelled),
           count(@schema@.wake(queue_id))
      into jobs, dead, v_waiting from (select distinct queue_id from orphan) as q;
    if v_waiting is not null then
        perform @schema@.drop_unique(v_waiting);
    end if;
end $$;

-- Gives each job of a lease a lease of its own, like it; their numbers.
create or replace function @schema@.take_apart(p_lease bigint) returns bigint[]
language sql
begin atomic
    with gone as (
        delete from @schema@.lease where id = p_lease
        returning token, worker_id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at,
                  claimed_at, epoch, task, batch
    ), parts as (
        insert into @schema@.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues, is_ahead,
                                    ready_at, claimed_at, epoch, task, batch)
        select token, worker_id, partition_id, priority, pos, range, m, m + 1, attempt, rescues, is_ahead, ready_at, claimed_at, epoch, task,
               batch
          from gone cross join lateral unnest(@schema@.positions(low, high, members)) as m
        returning id
    )
    select array(select id from parts);
end;

-- rescue: what a dead worker held is ready again, at the same `pos`, under a new lease number when claimed. First the
-- dead workers' rows go (their renew then finds nothing), then every lease without a worker is taken: a
-- claim that committed late is found too. Jobs that were claimed ahead may not have started, and of a batch any may be the
-- one that killed the worker: they are charged no attempt, but run again with few beside them, never ahead and in no batch,
-- so that one of them that kills its worker is charged then.
-- Where something about one of them is refused it is set aside, and costs no other: lease by lease, then job by job.
create or replace function @schema@.rescue(out workers int, out jobs int, out dead int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_leases   bigint[];
    v_sessions int[];
    v_lease    bigint;
    v_error    text;
begin
    with gone as (
        delete from @schema@.worker where id in (
            select id from @schema@.worker where renewed_at < now() - make_interval(secs => lease_seconds)
             order by id for update skip locked)
        returning id, session_pid)
    select count(*), array_agg(session_pid) into workers, v_sessions from gone;
    -- A worker that stands still in the middle of a turn keeps its partitions and leases locked for as long as it does. So
    -- its session is ended; one that acts for many is noted in the row of who acts, and is not ended with one of them.
    if workers > 0 then
        begin
            perform pg_terminate_backend(a.pid) from pg_stat_activity as a
              where a.pid = any (v_sessions) and a.datname = current_database() and a.application_name like 'penstock%';
        exception when insufficient_privilege then
            null;
        end;
    end if;

    v_leases := array(select l.id from @schema@.lease as l
                       where not exists (select from @schema@.worker as w where w.id = l.worker_id)
                       order by l.id limit 200 for update skip locked);
    begin
        select r.jobs, r.dead into jobs, dead from @schema@.rescue_leases(v_leases) as r;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        jobs := 0;
        dead := 0;
        while v_leases <> '{}' loop
            v_lease := v_leases[1];
            v_leases := v_leases[2:];
            begin
                select rescue.jobs + r.jobs, rescue.dead + r.dead into jobs, dead from @schema@.rescue_leases(array[v_lease]) as r;
            exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
                get stacked diagnostics v_error = message_text;
                if (select @schema@.members_count(low, high, members) > 1 from @schema@.lease where id = v_lease) then
                    v_leases := @schema@.take_apart(v_lease) || v_leases;
                else
                    perform @schema@.set_lease_aside(v_lease, v_error);
                    jobs := jobs + 1;
                end if;
            end;
        end loop;
    end;
end $$;
