-- breaking: no
-- Upkeep's acts: each takes a bounded batch, skips what others hold, and is safe in any number of workers.

-- What leases held whose worker is gone is ready again, in place, or a dead letter. The caller has locked them.
create function penstock.rescue_leases(p_leases bigint[], out jobs int, out dead int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with orphan as materialized (
        select l.*, p.queue_id, q.is_owned, q.halts_on_dead
          from penstock.lease as l
          join penstock.partition as p on p.id = l.partition_id join penstock.queue as q on q.id = p.queue_id
         where l.id = any (p_leases)
    ), member as materialized (
        select o.*, m.pos as position, o.range * 1024 + m.pos as job_id, c.job_id is not null as is_cancelled,
               j.key, coalesce(j.task, o.task) as job_task,
               case when o.is_ahead then 'suspect'
                    when o.attempt < coalesce(t.max_attempts, 25) then 'again' else 'dead' end as fate
          from orphan as o
         cross join lateral unnest(penstock.positions(o.low, o.high, o.members)) as m(pos)
          left join lateral (select task, key from penstock.job_stored where id = o.range * 1024 + m.pos and o.is_owned limit 1) as j on true
          left join penstock.task as t on t.queue_id = o.queue_id and t.name = coalesce(j.task, o.task)
          left join penstock.cancellation as c on c.job_id = o.range * 1024 + m.pos
    ), attempts as (
        insert into penstock.failure (job_id, attempt, worker, error)
        select job_id, attempt, 'worker ' || worker_id, 'WorkerDied: worker ' || worker_id || ' ended or died while it held this job'
          from member where fate in ('again', 'dead') and not is_cancelled
    ), again as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at,
                                    changed, epoch, task)
        select partition_id, priority, pos, range, min(position), max(position) + 1,
               case when count(*) <= max(position) - min(position) then bit_or(penstock.single(position)) end,
               attempt + (fate = 'again')::int, least(rescues + 1, 2), ready_at,
               case when is_owned then pg_current_xact_id() end, epoch, task
          from member where fate in ('again', 'suspect') and not is_cancelled
         group by id, partition_id, priority, pos, range, attempt, fate, rescues, ready_at, is_owned, epoch, task
    ), dead_letters as (
        insert into penstock.dead (job_id, partition_id, task, attempt, started_at, worker, error)
        select job_id, partition_id, job_task, attempt, claimed_at, 'worker ' || worker_id,
               'WorkerDied: worker ' || worker_id || ' ended or died while it held this job'
          from member where fate = 'dead' and not is_cancelled
    ), halts as (
        insert into penstock.halted (queue_id, key, job_id, epoch)
        select distinct on (queue_id, key) queue_id, key, job_id, epoch
          from member where fate = 'dead' and not is_cancelled and halts_on_dead and key is not null
         order by queue_id, key, job_id
        on conflict do nothing
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
        delete from penstock.lease where id = any (p_leases)
    )
    select (select count(*) from member), (select count(*) from member where fate = 'dead' and not is_cancelled),
           count(penstock.wake(queue_id))
      into jobs, dead from (select distinct queue_id from orphan) as q;
end $$;

-- Gives each job of a lease a lease of its own, like it; their numbers.
create function penstock.take_apart(p_lease bigint) returns bigint[]
language sql
begin atomic
    with gone as (
        delete from penstock.lease where id = p_lease returning *
    ), parts as (
        insert into penstock.lease (token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues, is_ahead,
                                    ready_at, claimed_at, epoch, task)
        select token, worker_id, partition_id, priority, pos, range, m, m + 1, attempt, rescues, is_ahead, ready_at, claimed_at, epoch, task
          from gone cross join lateral unnest(penstock.positions(low, high, members)) as m
        returning id
    )
    select array(select id from parts);
end;

-- rescue: what a dead worker held is ready again, in place, under a new lease number when claimed. First the
-- dead workers' rows go (their renew then finds nothing), then every lease without a worker is taken: a
-- claim that committed late is found too. Jobs that were claimed ahead may not have started: they are charged no
-- attempt, but run again with few beside them, never ahead, so that one of them that kills its worker is charged then.
-- Where something about one of them is refused it is set aside, and costs no other: lease by lease, then job by job.
create function penstock.rescue(out workers int, out jobs int, out dead int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_leases   bigint[];
    v_sessions int[];
    v_lease    bigint;
    v_error    text;
begin
    with gone as (
        delete from penstock.worker where id in (
            select id from penstock.worker where renewed_at < now() - make_interval(secs => lease_seconds)
             order by id for update skip locked)
        returning id, session_pid)
    select count(*), array_agg(session_pid) into workers, v_sessions from gone;
    -- A worker that stands still in the middle of a turn keeps its partitions and leases locked for as long as it does.
    if workers > 0 then
        begin
            perform pg_terminate_backend(a.pid) from pg_stat_activity as a
              where a.pid = any (v_sessions) and a.datname = current_database() and a.application_name like 'penstock%';
        exception when insufficient_privilege then
            null;
        end;
    end if;

    v_leases := array(select l.id from penstock.lease as l
                       where not exists (select from penstock.worker as w where w.id = l.worker_id)
                       order by l.id limit 200 for update skip locked);
    begin
        select r.jobs, r.dead into jobs, dead from penstock.rescue_leases(v_leases) as r;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        jobs := 0;
        dead := 0;
        while v_leases <> '{}' loop
            v_lease := v_leases[1];
            v_leases := v_leases[2:];
            begin
                select rescue.jobs + r.jobs, rescue.dead + r.dead into jobs, dead from penstock.rescue_leases(array[v_lease]) as r;
            exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
                get stacked diagnostics v_error = message_text;
                if (select penstock.members_count(low, high, members) > 1 from penstock.lease where id = v_lease) then
                    v_leases := penstock.take_apart(v_lease) || v_leases;
                else
                    perform penstock.set_lease_aside(v_lease, v_error);
                    jobs := jobs + 1;
                end if;
            end;
        end loop;
    end;
end $$;

-- Sets jobs aside that are ready: they are parked with a reason, each in a row of its own, until a person lets them back in
-- (penstock.let_back) or cancels them. What they wait for is not known: they belong to no map of keys meanwhile, and
-- hold no key. Returns those that were ready. Locks: their ready rows, by range. Index: ready_of_range.
create function penstock.set_aside(p_jobs bigint[], p_reasons text[]) returns setof bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_none bit(1024) := repeat('0', 1024)::bit(1024);
    v_row  record;
begin
    for v_row in
        select r.ctid as tid, r.partition_id, r.priority, r.pos, r.range, r.attempt, r.rescues, r.ready_at, r.task,
               coalesce(r.members, penstock.span(r.low, r.high)) as map, g.mask, g.jobs, g.reasons
          from (select j / 1024 as range, bit_or(penstock.single((j % 1024)::int)) as mask, array_agg(j) as jobs,
                       array_agg(left(reason, 1000)) as reasons
                  from unnest(p_jobs, p_reasons) as g(j, reason) group by 1) as g
          join penstock.ready as r on r.range = g.range
         where r.reason is null and (coalesce(r.members, penstock.span(r.low, r.high)) & g.mask) <> v_none
         order by r.range, r.low for update of r
    loop
        delete from penstock.ready where ctid = v_row.tid and (v_row.map & ~v_row.mask) = v_none;
        update penstock.ready set members = v_row.map & ~v_row.mask
         where ctid = v_row.tid and (v_row.map & ~v_row.mask) <> v_none;
        return query
            insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason,
                                        ready_at, task)
            select v_row.partition_id, v_row.priority, v_row.pos, v_row.range, j % 1024, j % 1024 + 1, v_row.attempt,
                   v_row.rescues, true, reason, v_row.ready_at, v_row.task
              from unnest(v_row.jobs, v_row.reasons) as g(j, reason) where get_bit(v_row.map, (j % 1024)::int) = 1
            returning range * 1024 + low;
    end loop;
end $$;

-- The same for the jobs of a lease that the caller has locked.
create function penstock.set_lease_aside(p_lease bigint, p_reason text) returns void
language sql
begin atomic
    with gone as (
        delete from penstock.lease where id = p_lease returning *
    )
    insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason, ready_at, task)
    select partition_id, priority, pos, range, m, m + 1, attempt, rescues, true, left(p_reason, 1000), ready_at, task
      from gone cross join lateral unnest(penstock.positions(low, high, members)) as m;
end;

-- Tells that a duty of upkeep left a job where it is, because it could neither be moved nor set aside. Written down every
-- half minute, as other troubles are: whoever meets it in between waits for nobody.
create function penstock.note_left(p_duty text, p_job bigint, p_error text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.trouble where duty = p_duty and noted_at > clock_timestamp() - interval '30 s') then
        return;
    end if;
    insert into penstock.trouble as t (duty, error, since)
    values (p_duty, format('job %s stays where it is, and cannot be set aside: %s', p_job, left(p_error, 1000)), clock_timestamp())
    on conflict (duty) do update set error = excluded.error, noted_at = excluded.noted_at,
        since = case when t.noted_at > clock_timestamp() - interval '2 minutes' then t.since else excluded.since end;
exception when insufficient_privilege then
    null; -- Who only enqueues keeps no notes.
end $$;

-- Why a job is set aside that is needed and is in no table of jobs.
create function penstock.not_stored() returns text
language sql immutable parallel safe
return 'it is in no table of jobs';

-- Where a paused load's jobs wait: after all times, in the order they had. Those that come from a shard that is drained
-- wait before the others of a shard: there is room before the first.
create function penstock.paused_at(p_pos bigint) returns timestamptz
language sql immutable parallel safe
return timestamptz '14000-01-01 00:00:00+00' + p_pos * interval '1 microsecond';

-- Whatever waits until then or longer waits for its load.
create function penstock.paused_from() returns timestamptz
language sql immutable parallel safe
return timestamptz '10000-01-01 00:00:00+00';

-- Jobs that are open in a partition, or will be: without those of paused loads, which are due at no time. Index: load_paused,
-- scheduled_by_due_time.
create function penstock.expected_in(p_depth penstock.depth) returns bigint
language sql stable
begin atomic
    select p_depth.opened + p_depth.scheduled + p_depth.blocked
         - case when exists (select from penstock.load where is_paused)
                then coalesce((select sum(penstock.members_count(low, high, members)) from penstock.scheduled
                                where due_at >= penstock.paused_from() and partition_id = p_depth.partition_id), 0)
                else 0 end;
end;

-- The partitions of queues whose map is not open: nothing can take a place by it.
create function penstock.shut_partitions() returns int[]
language sql stable
begin atomic
    select array(select p.id from penstock.queue as q join penstock.partition as p on p.queue_id = q.id
                  where not q.is_open and q.is_owned);
end;

-- promote: what is due becomes ready. Retries that are due together rejoin their range. Those that held their key come
-- back to their place; everything else takes a place now, and with an owner that is by the map of now, job by job where
-- it was written by another; a job whose key lives on another shard by now is sent there. What belongs to a paused load
-- waits on, and so does what would take a place by a map that is not open. Never by a scan, which a server that has not
-- looked at a fast growing table yet would choose. Index: scheduled_by_due_time.
create function penstock.promote(p_limit int) returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_rows   tid[];
    v_moved  tid[];
    v_queues int[];
    v_epochs int[];
    v_shut   int[] := penstock.shut_partitions();
begin
    -- What is due of a paused load waits on, in the order it was due. Whoever resumes it waits until this is done.
    perform from penstock.load where is_paused order by id for share;
    if found then
        update penstock.scheduled as s set due_at = penstock.paused_at(held.place)
          from (select tid, penstock.draw_range() as place
                  from (select s.ctid as tid from penstock.scheduled as s
                          join penstock.load_range as r on r.range = s.range
                          join penstock.load as l on l.id = r.load_id and l.is_paused
                         where s.due_at <= now()
                         order by s.due_at, s.range, penstock.first_member(s.low, s.members) for update of s) as due) as held
         where s.ctid = held.tid;
    end if;
    v_rows := array(select ctid from penstock.scheduled
                     where due_at <= now() and (v_shut = '{}' or pos is not null or partition_id <> all (v_shut))
                     order by due_at limit p_limit for update skip locked);
    v_queues := array(select distinct p.queue_id
                        from penstock.scheduled as s join penstock.partition as p on p.id = s.partition_id
                       where s.ctid = any (v_rows) and s.task = '' and s.pos is null);
    if v_queues <> '{}' then
        v_epochs := array(select penstock.hold_map(q) from unnest(v_queues) as q);
        -- Each of their jobs is looked at: a bounded number, the rest next time.
        v_moved := array(
            select s.ctid from penstock.scheduled as s join penstock.partition as p on p.id = s.partition_id
              join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
             where s.ctid = any (v_rows) and s.task = '' and s.pos is null and s.epoch is distinct from h.epoch
             order by s.due_at, s.range offset 100);
        v_rows := array(select unnest(v_rows) except select unnest(v_moved));
    end if;

    if v_rows = '{}' then
        return 0;
    end if;
    return penstock.promote_some(v_rows, v_queues, v_epochs);
end $$;

-- Makes these rows ready, which the caller has locked, by maps that it holds; where that is refused, by halves, then job by
-- job. A job that is refused alone is set aside, and where not even that can be written it stays where it is, and is told.
create function penstock.promote_some(p_rows tid[], p_queues int[], p_epochs int[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_error text;
    v_job   bigint;
begin
    begin
        return penstock.promote_rows(p_rows, p_queues, p_epochs);
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    if cardinality(p_rows) = 1 then
        p_rows := penstock.take_scheduled_apart(p_rows[1]);
    end if;
    if cardinality(p_rows) > 1 then
        -- What is due first takes its place first.
        p_rows := array(select ctid from penstock.scheduled where ctid = any (p_rows)
                         order by due_at, range, penstock.first_member(low, members));
        return penstock.promote_some(p_rows[:cardinality(p_rows) / 2], p_queues, p_epochs)
             + penstock.promote_some(p_rows[cardinality(p_rows) / 2 + 1:], p_queues, p_epochs);
    end if;
    select range * 1024 + low into v_job from penstock.scheduled where ctid = p_rows[1];
    begin
        perform penstock.set_scheduled_aside(p_rows[1], 'it is due and cannot be made ready: ' || v_error);
        return 1;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform penstock.note_left('promote', v_job, v_error);
        return 0;
    end;
end $$;

-- Gives each job of a scheduled row a row of its own, like it; where those are.
create function penstock.take_scheduled_apart(p_row tid) returns tid[]
language sql
begin atomic
    with gone as (
        delete from penstock.scheduled where ctid = p_row returning *
    ), parts as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, attempt, rescues, pos, epoch, task)
        select due_at, partition_id, priority, range, m, m + 1, attempt, rescues, pos, epoch, task
          from gone cross join lateral unnest(penstock.positions(low, high, members)) as m
        returning ctid
    )
    select array(select ctid from parts);
end;

-- Sets the one job of a scheduled row aside.
create function penstock.set_scheduled_aside(p_row tid, p_reason text) returns void
language sql
begin atomic
    with gone as (
        delete from penstock.scheduled where ctid = p_row returning *
    ), aside as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason, task)
        select partition_id, priority, coalesce(pos, penstock.draw_range()), range, low, high, attempt, rescues, true,
               left(p_reason, 1000), task
          from gone
    )
    insert into penstock.tally (partition_id, opened, scheduled) select partition_id, 1, -1 from gone;
end;

-- Makes these rows ready, all or none; how many jobs.
create function penstock.promote_rows(p_rows tid[], p_queues int[], p_epochs int[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with due as (
        delete from penstock.scheduled where ctid = any (p_rows) returning *
    ), given as materialized (
        select d.*, p.queue_id, m.partition_ids, m.epoch as map_epoch,
               m.epoch is not null and d.pos is null and d.epoch is distinct from m.epoch as is_moved
          from due as d join penstock.partition as p on p.id = d.partition_id
          left join unnest(p_queues, p_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join penstock.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
    ), moved as materialized (
        -- One that is not stored has a key that nobody knows, and so no place: it is set aside where it was.
        select g.*, m.position, case when j.id is null then penstock.not_stored() end as reason,
               case when j.id is null then g.partition_id
                    else penstock.place_by(g.partition_ids, j.key, g.partition_id) end as place
          from given as g
         cross join lateral unnest(penstock.positions(g.low, g.high, g.members)) as m(position)
          left join lateral (select id, key from penstock.job_stored where id = g.range * 1024 + m.position limit 1) as j on true
         where g.is_moved
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt)
        select t.shard, m.range * 1024 + m.position, m.partition_id, m.attempt
          from moved as m join penstock.partition as t on t.id = m.place and t.shard <> penstock.here()
         order by m.due_at, m.range, m.position
        returning partition_id
    ), placed as (
        select partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, due_at, low, high, members,
               null as reason
          from given where not is_moved
        union all
        select t.id, m.queue_id, m.priority, m.range, m.attempt, m.rescues, m.task, null,
               case when m.reason is null then m.map_epoch end, m.due_at,
               min(m.position), (max(m.position) + 1)::smallint, bit_or(penstock.single(m.position)), m.reason
          from moved as m join penstock.partition as t on t.id = m.place and t.shard = penstock.here()
         group by t.id, m.queue_id, m.priority, m.range, m.attempt, m.rescues, m.task, m.map_epoch, m.due_at, m.low, m.reason,
                  case when m.reason is not null then m.position end
    ), joined as (
        select partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, reason,
               min(due_at) as due_at, min(low) as low, max(high) as high,
               case when count(*) = 1 then (array_agg(members))[1]
                    else bit_or(coalesce(members, penstock.span(low, high))) end as members
          from placed
         group by partition_id, queue_id, priority, range, attempt, rescues, task, pos, epoch, reason,
                  case when reason is not null then low end
         order by min(due_at), range, min(penstock.first_member(low, members))
    ), again as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, is_parked,
                                    reason, changed, epoch, task)
        select partition_id, priority, coalesce(pos, penstock.draw_range()), range, low, high, members, attempt, rescues,
               reason is not null, reason, case when epoch is not null then pg_current_xact_id() end, epoch, task
          from joined
        returning partition_id, penstock.members_count(low, high, members) as n
    ), counted as (
        insert into penstock.tally (partition_id, opened, scheduled)
        select partition_id, sum(opened), sum(scheduled) from (
            select partition_id, n as opened, 0 as scheduled from again
            union all
            select partition_id, 1, 0 from sent
            union all
            select partition_id, 0, -penstock.members_count(low, high, members) from due) as c
         group by partition_id
    ), woken as (
        select count(penstock.wake(queue_id)) from (select distinct queue_id from joined) as q
    )
    select coalesce(sum(n), 0) + (select count(*) from sent) into v_count from again, woken;
    return v_count;
end $$;

-- How a job ended: its outcome, or null while it has not. Of one on another shard, as far as it was heard of here.
create function penstock.outcome_of(p_job bigint) returns int
language sql stable
begin atomic
    select coalesce(
        (select f.outcome::int from penstock.finished as f
          where f.range = p_job / 1024 and (p_job % 1024)::smallint = any (f.positions) limit 1),
        (select 1 from penstock.dead as d where d.job_id = p_job),
        (select (not e.has_succeeded)::int from penstock.parent_end as e where e.job_id = p_job));
end;

-- unblock: children whose parents have all ended become ready, or are cancelled where a parent failed and
-- they do not run on failure. p_children null: the next children after p_after, by id. Runs in a transaction
-- of its own, after the one that ended the parents: of two who end the last two parents, the later sees both. Only
-- what is let go is locked, so that neither passes over a child because the other looks at it. Returns how many it
-- looked at and how many it let go.
create function penstock.unblock(p_children bigint[], p_after bigint, p_limit int,
                                 out looked_at int, out freed int, out last_id bigint, out cancelled bigint[])
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    if p_children is null then
        p_children := array(select job_id from penstock.blocked where job_id > p_after order by job_id limit p_limit);
    end if;
    looked_at := cardinality(p_children);
    last_id := p_children[looked_at];
    select s.freed, s.cancelled into freed, cancelled from penstock.unblock_some(p_children) as s;
end $$;

-- Looks at these children, and lets go what may; where that is refused, by halves. A child that is refused alone is set
-- aside. One whose parents' ends cannot be read stays blocked, for it may have to wait; so does one that cannot even be
-- set aside, and both are told.
create function penstock.unblock_some(p_children bigint[], out freed int, out cancelled bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_shut  int[] := penstock.shut_partitions();
    v_free  bigint[];
    v_error text;
    v_half  int;
    v_first record;
    v_rest  record;
begin
    begin
        with child as materialized (
            select b.* from penstock.blocked as b where b.job_id = any (p_children)
        ), judged as materialized (
            select c.job_id, c.runs_on_failure, e.n_open, e.n_failed
              from child as c
             cross join lateral (
                   select count(*) filter (where o is null) as n_open, count(*) filter (where o <> 0) as n_failed
                     from unnest(c.parents) as p(id) cross join lateral penstock.outcome_of(p.id) as o) as e
        ), locked as materialized (
            select b.job_id from penstock.blocked as b
             where b.job_id in (select job_id from judged where n_open = 0 or (n_failed > 0 and not runs_on_failure))
               and (v_shut = '{}' or b.partition_id <> all (v_shut))
             order by b.job_id for update skip locked
        )
        select array(select job_id from locked),
               array(select j.job_id from judged as j join locked as l on l.job_id = j.job_id
                      where j.n_failed > 0 and not j.runs_on_failure)
          into v_free, cancelled;
        freed := cardinality(v_free);
        if freed > 0 then
            perform penstock.let_go(v_free, cancelled);
        end if;
        return;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    p_children := coalesce(v_free, p_children);
    v_half := cardinality(p_children) / 2;
    if v_half > 0 then
        v_first := penstock.unblock_some(p_children[:v_half]);
        v_rest := penstock.unblock_some(p_children[v_half + 1:]);
        freed := v_first.freed + v_rest.freed;
        cancelled := v_first.cancelled || v_rest.cancelled;
        return;
    end if;
    freed := 0;
    begin
        if v_free is null then
            perform penstock.note_left('unblock', p_children[1], v_error);
        else
            freed := penstock.set_blocked_aside(p_children[1],
                case when cancelled = '{}' then 'its parents have ended and it cannot be let go: '
                     else 'a parent did not succeed and it cannot be cancelled: ' end || v_error);
        end if;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform penstock.note_left('unblock', p_children[1], v_error);
    end;
    cancelled := '{}';
end $$;

-- Sets a child aside whose parents have ended; whether it was blocked still, as a number.
create function penstock.set_blocked_aside(p_job bigint, p_reason text) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with gone as (
        delete from penstock.blocked where job_id = p_job returning *
    ), edges as (
        delete from penstock.dependency as d using gone as g where d.child_id = g.job_id and d.parent_id = any (g.parents)
    ), aside as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, is_parked, reason, task)
        select g.partition_id, g.priority, penstock.draw_range(), g.job_id / 1024, g.job_id % 1024, g.job_id % 1024 + 1, true,
               left(p_reason, 1000), case when q.is_owned then '' else g.task end
          from gone as g join penstock.partition as p on p.id = g.partition_id join penstock.queue as q on q.id = p.queue_id
    ), counted as (
        insert into penstock.tally (partition_id, blocked, opened) select partition_id, -1, 1 from gone
    )
    select count(*) into v_count from gone;
    return v_count;
end $$;

-- Lets these children go, which the caller has locked: those of p_cancelled are cancelled.
create function penstock.let_go(p_free bigint[], p_cancelled bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queues int[];
    v_epochs int[];
    v_woken  int;
begin
    -- Where a queue has an owner they take their place by the map of now, or are sent to the shard their key lives on.
    v_queues := array(select distinct q.id
                        from penstock.blocked as b join penstock.partition as p on p.id = b.partition_id
                        join penstock.queue as q on q.id = p.queue_id
                       where b.job_id = any (p_free) and q.is_owned);
    v_epochs := array(select penstock.hold_map(q) from unnest(v_queues) as q);

    with gone as (
        delete from penstock.blocked where job_id = any (p_free) returning *
    ), free as materialized (
        select g.job_id, g.partition_id, g.priority, g.run_at, g.parents, p.queue_id, m.epoch,
               case when m.epoch is null then g.task else '' end as task, g.job_id = any (p_cancelled) as is_cancelled,
               g.run_at is not null and g.run_at > now() as is_later,
               case when m.epoch is not null and j.id is null then penstock.not_stored() end as reason,
               case when m.epoch is null or j.id is null then g.partition_id
                    else penstock.place_by(m.partition_ids, j.key, g.partition_id) end as place
          from gone as g join penstock.partition as p on p.id = g.partition_id
          left join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join penstock.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
          left join lateral (select id, key from penstock.job_stored where id = g.job_id and m.epoch is not null limit 1) as j on true
    ), sent as (
        insert into penstock.outbox (shard, job_id, partition_id, attempt)
        select t.shard, f.job_id, f.partition_id, 1
          from free as f join penstock.partition as t on t.id = f.place and t.shard <> penstock.here()
         where not f.is_cancelled and not f.is_later order by f.job_id
        returning job_id
    ), edges as (
        delete from penstock.dependency as d using free as f where d.child_id = f.job_id and d.parent_id = any (f.parents)
    ), at_once as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, is_parked, reason, changed, epoch, task)
        select place, priority, penstock.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, reason is not null, reason,
               case when epoch is not null and reason is null then pg_current_xact_id() end,
               case when reason is null then epoch end, task
          from free where not is_cancelled and not is_later and job_id not in (select job_id from sent) order by job_id
    ), later as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, task)
        select run_at, partition_id, priority, job_id / 1024, job_id % 1024, job_id % 1024 + 1, task
          from free where not is_cancelled and is_later
    ), history as (
        insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions, errors)
        select penstock.current_slice(), job_id / 1024, partition_id, 2, 1, array[(job_id % 1024)::smallint],
               array['a parent did not succeed']
          from free where is_cancelled
    ), counted as (
        insert into penstock.tally (partition_id, blocked, opened, scheduled)
        select partition_id, sum(blocked), sum(opened), sum(scheduled) from (
            select partition_id, -1 as blocked, 0 as opened, (not is_cancelled and is_later)::int as scheduled from free
            union all
            select case when s.job_id is null then f.place else f.partition_id end, 0, 1, 0
              from free as f left join sent as s on s.job_id = f.job_id where not f.is_cancelled and not f.is_later) as c
         group by partition_id
    )
    select count(penstock.wake(queue_id)) into v_woken from (select distinct queue_id from free) as q;
end $$;

-- park: rows whose task no live worker knows leave the order, so that they never stand at the head; they
-- come back as soon as one does. Looks at the head of each served partition only. Where a partition has an owner, that
-- one knows what to do: a job it has no handler for waits, and its key with it.
create function penstock.park() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with served as (
        select p.id, p.queue_id
          from penstock.partition as p join penstock.queue as q on q.id = p.queue_id and not q.is_owned
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
         where r.is_parked and r.reason is null and r.partition_id = k.partition_id and r.task = k.task returning k.queue_id
    )
    select v_count + count(penstock.wake(queue_id)) into v_count from (select distinct queue_id from back) as q;
    return v_count;
end $$;

-- fold: tally rows are added into the totals. One folder at a time; the others pass.
create function penstock.fold() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
