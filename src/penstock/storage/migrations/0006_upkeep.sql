-- breaking: no
-- Upkeep's acts: each takes a bounded batch, skips what others hold, and is safe in any number of workers.

-- rescue: what a dead worker held is ready again, in place, under a new lease number when claimed. First the
-- dead workers' rows go (their renew then finds nothing), then every lease without a worker is taken: a
-- claim that committed late is found too. Jobs that were claimed ahead may not have started: they are charged no
-- attempt, but run again with few beside them, never ahead, so that one of them that kills its worker is charged then.
create function penstock.rescue(out workers int, out jobs int, out dead int)
language plpgsql as $$
begin
    with gone as (
        delete from penstock.worker where id in (
            select id from penstock.worker where renewed_at < now() - make_interval(secs => lease_seconds)
             order by id for update skip locked)
        returning id)
    select count(*) into workers from gone;

    with orphan as materialized (
        select l.* from penstock.lease as l
         where not exists (select from penstock.worker as w where w.id = l.worker_id)
         order by l.id limit 200 for update skip locked
    ), verdict as materialized (
        select o.*, p.queue_id, case when o.is_ahead then 'suspect'
                       when o.attempt < coalesce(t.max_attempts, 25) then 'again' else 'dead' end as fate
          from orphan as o
          join penstock.partition as p on p.id = o.partition_id
          left join penstock.task as t on t.queue_id = p.queue_id and t.name = o.task
    ), member as materialized (
        select v.*, m.pos as position, v.range * 1024 + m.pos as job_id, c.job_id is not null as is_cancelled
          from verdict as v
         cross join lateral unnest(penstock.positions(v.low, v.high, v.members)) as m(pos)
          left join penstock.cancellation as c on c.job_id = v.range * 1024 + m.pos
    ), attempts as (
        insert into penstock.failure (job_id, attempt, worker, error)
        select job_id, attempt, 'worker ' || worker_id, 'WorkerDied: worker ' || worker_id || ' died while it held this job'
          from member where fate in ('again', 'dead') and not is_cancelled
    ), again as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at, task)
        select partition_id, priority, pos, range, min(position), max(position) + 1,
               case when count(*) <= max(position) - min(position) then bit_or(penstock.single(position)) end,
               attempt + (fate = 'again')::int, least(rescues + 1, 2), ready_at, task
          from member where fate in ('again', 'suspect') and not is_cancelled
         group by id, partition_id, priority, pos, range, attempt, fate, rescues, ready_at, task
    ), dead_letters as (
        insert into penstock.dead (job_id, partition_id, task, attempt, started_at, worker, error)
        select job_id, partition_id, task, attempt, claimed_at, 'worker ' || worker_id,
               'WorkerDied: worker ' || worker_id || ' died while it held this job'
          from member where fate = 'dead' and not is_cancelled
    ), cancelled as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
        select penstock.current_slice(), range, partition_id, 2, attempt, array_agg(position)
          from member where is_cancelled group by id, range, partition_id, attempt
    ), asks as (
        delete from penstock.cancellation where job_id in (select job_id from member where is_cancelled)
    ), counted as (
        insert into penstock.tally (partition_id, opened, dead, failed)
        select partition_id, -count(*), count(*) filter (where not is_cancelled), count(*) filter (where not is_cancelled)
          from member where is_cancelled or fate = 'dead' group by partition_id
    ), freed as (
        delete from penstock.lease where id in (select id from orphan)
    )
    select (select count(*) from member), (select count(*) from member where fate = 'dead' and not is_cancelled),
           count(penstock.wake(queue_id))
      into jobs, dead from (select distinct queue_id from verdict) as q;
end $$;

-- promote: what is due becomes ready. Retries that are due together rejoin their range. Never by a scan, which a server
-- that has not looked at a fast growing table yet would choose. Index: scheduled_by_due_time.
create function penstock.promote(p_limit int) returns int
language plpgsql set enable_seqscan = off as $$
declare
    v_count int;
begin
    with due as (
        delete from penstock.scheduled where ctid = any (array(
            select ctid from penstock.scheduled where due_at <= now()
             order by due_at limit p_limit for update skip locked))
        returning *
    ), joined as (
        select partition_id, priority, range, attempt, rescues, task, min(due_at) as due_at, min(low) as low, max(high) as high,
               case when count(*) = 1 then (array_agg(members))[1]
                    else bit_or(coalesce(members, penstock.span(low, high))) end as members
          from due group by partition_id, priority, range, attempt, rescues, task
         order by min(due_at), range
    ), again as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, task)
        select partition_id, priority, penstock.draw_range(), range, low, high, members, attempt, rescues, task from joined
        returning partition_id, penstock.members_count(low, high, members) as n
    ), counted as (
        insert into penstock.tally (partition_id, opened, scheduled)
        select partition_id, sum(n), -sum(n) from again group by partition_id
    ), woken as (
        select count(penstock.wake(queue_id)) from (
            select distinct p.queue_id from again as a join penstock.partition as p on p.id = a.partition_id) as q
    )
    select coalesce(sum(n), 0) into v_count from again, woken;
    return v_count;
end $$;

-- How a job ended: its outcome, or null while it has not.
create function penstock.outcome_of(p_job bigint) returns int
language sql stable as $$
    select coalesce(
        (select f.outcome::int from penstock.finished as f
          where f.range = p_job / 1024 and (p_job % 1024)::smallint = any (f.positions) limit 1),
        (select 1 from penstock.dead as d where d.job_id = p_job))
$$;

-- unblock: children whose parents have all ended become ready, or are cancelled where a parent failed and
-- they do not run on failure. p_children null: the next children after p_after, by id. Runs in a transaction
-- of its own, after the one that ended the parents: of two who end the last two parents, the later sees both. Only
-- what is let go is locked, so that neither passes over a child because the other looks at it. Returns how many it
-- looked at and how many it let go.
create function penstock.unblock(p_children bigint[], p_after bigint, p_limit int,
                                 out looked_at int, out freed int, out last_id bigint, out cancelled bigint[])
language plpgsql set enable_seqscan = off as $$
begin
    with child as materialized (
        (select b.* from penstock.blocked as b where p_children is null and b.job_id > p_after
          order by b.job_id limit p_limit)
        union all
        select b.* from penstock.blocked as b where b.job_id = any (p_children)
    ), judged as materialized (
        select c.*, j.queue_id, e.n_open, e.n_failed
          from child as c join penstock.partition as j on j.id = c.partition_id
         cross join lateral (
               select count(*) filter (where o is null) as n_open, count(*) filter (where o <> 0) as n_failed
                 from unnest(c.parents) as p(id) cross join lateral penstock.outcome_of(p.id) as o) as e
    ), locked as materialized (
        select b.job_id, b.run_at from penstock.blocked as b
         where b.job_id in (select job_id from judged where n_open = 0 or (n_failed > 0 and not runs_on_failure))
         order by b.job_id for update skip locked
    ), free as materialized (
        select j.job_id, j.partition_id, j.queue_id, j.priority, j.task, j.parents, l.run_at,
               j.n_failed > 0 and not j.runs_on_failure as is_cancelled
          from judged as j join locked as l on l.job_id = j.job_id
    ), gone as (
        delete from penstock.blocked where job_id in (select job_id from free)
    ), edges as (
        delete from penstock.dependency as d using free as f where d.child_id = f.job_id and d.parent_id = any (f.parents)
    ), at_once as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, task)
        select partition_id, priority, penstock.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, task
          from free where not is_cancelled and (run_at is null or run_at <= now())
    ), later as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, task)
        select run_at, partition_id, priority, job_id / 1024, job_id % 1024, job_id % 1024 + 1, task
          from free where not is_cancelled and run_at > now()
    ), history as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions, errors)
        select penstock.current_slice(), job_id / 1024, partition_id, 2, 1, array[(job_id % 1024)::smallint],
               array['a parent did not succeed']
          from free where is_cancelled
    ), counted as (
        insert into penstock.tally (partition_id, blocked, opened, scheduled)
        select partition_id, -count(*), count(*) filter (where not is_cancelled and (run_at is null or run_at <= now())),
               count(*) filter (where not is_cancelled and run_at > now())
          from free group by partition_id
    ), woken as (
        select count(penstock.wake(queue_id)) as n from (select distinct queue_id from free) as q
    )
    select (select count(*) from child), (select count(*) from free), (select max(job_id) from child),
           (select array_agg(job_id) from free where is_cancelled)
      into looked_at, freed, last_id, cancelled from woken;
end $$;

-- park: rows whose task no live worker knows leave the order, so that they never stand at the head; they
-- come back as soon as one does. Looks at the head of each served partition only.
create function penstock.park() returns int
language plpgsql as $$
declare
    v_count int;
begin
    with served as (
        select p.id, p.queue_id from penstock.partition as p
         where exists (select from penstock.worker_task as t where t.queue_id = p.queue_id)
    ), unknown as materialized (
        select r.tid from served as s cross join generate_series(0, 9) as level(priority)
         cross join lateral (
               select ctid as tid, task from penstock.ready
                where partition_id = s.id and not is_parked and priority = level.priority
                order by pos limit 1000) as r
         where not exists (select from penstock.worker_task as t where t.queue_id = s.queue_id and t.task = r.task)
    ), locked as materialized (
        select ctid as tid from penstock.ready where ctid = any (array(select tid from unknown)) for update skip locked
    ), parked as (
        update penstock.ready as r set is_parked = true from locked as l where r.ctid = l.tid returning 1
    )
    select count(*) into v_count from parked;
    with known as (
        select distinct p.id as partition_id, t.task, p.queue_id
          from penstock.worker_task as t join penstock.partition as p on p.queue_id = t.queue_id
    ), back as (
        update penstock.ready as r set is_parked = false from known as k
         where r.is_parked and r.partition_id = k.partition_id and r.task = k.task returning k.queue_id
    )
    select v_count + count(penstock.wake(queue_id)) into v_count from (select distinct queue_id from back) as q;
    return v_count;
end $$;

-- fold: tally rows are added into the totals. One folder at a time; the others pass.
create function penstock.fold() returns int
language plpgsql as $$
declare
    v_count int;
begin
    if not pg_try_advisory_xact_lock(hashtext('penstock.fold')) then
        return 0;
    end if;
    with gone as (
        delete from penstock.tally returning *
    ), folded as (
        insert into penstock.total as t (partition_id, opened, scheduled, blocked, dead, enqueued, completed, failed)
        select partition_id, sum(opened), sum(scheduled), sum(blocked), sum(dead), sum(enqueued), sum(completed), sum(failed)
          from gone group by partition_id order by partition_id
        on conflict (partition_id) do update set
            opened = t.opened + excluded.opened, scheduled = t.scheduled + excluded.scheduled,
            blocked = t.blocked + excluded.blocked, dead = t.dead + excluded.dead,
            enqueued = t.enqueued + excluded.enqueued, completed = t.completed + excluded.completed,
            failed = t.failed + excluded.failed
    )
    select count(*) into v_count from gone;
    return v_count;
end $$;
