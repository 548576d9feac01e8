-- What waited for other jobs.

-- unblock: what becomes of children, by how their parents stand and what each was to do if one fails:
--   all have succeeded, or ended and it is to run            it becomes ready
--   one did not succeed, and cannot come back                it is cancelled, unless it is to run
--   one did not succeed, and can (@schema@.may_come_back)    it is cancelled for now, unless it is to run or to wait
--   otherwise                                                it waits; one that was cancelled for now waits again
-- So whoever ends, retries or buries a parent has its children looked at, and where nobody did, upkeep finds them.
-- p_children null: the next children after p_after, by id. Runs in a transaction
-- of its own, after the one that moved the parents: of two who end the last two parents, the later sees both. Only
-- what changes is locked, so that neither passes over a child because the other looks at it. Returns how many it
-- looked at, how many changed, and those that were cancelled, for now or for good, or wait again: for their children that
-- is news.
create or replace function @schema@.unblock(p_children bigint[], p_after bigint, p_limit int,
                                 out looked_at int, out changed int, out last_id bigint, out told bigint[])
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    if p_children is null then
        p_children := array(select job_id from @schema@.blocked where job_id > p_after order by job_id limit p_limit);
    end if;
    looked_at := cardinality(p_children);
    last_id := p_children[looked_at];
    select s.changed, s.told into changed, told from @schema@.unblock_some(p_children) as s;
end $$;

-- Looks at these children, and lets go what may; where that is refused, by halves. A child that is refused alone is set
-- aside. One whose parents' ends cannot be read stays blocked, for it may have to wait; so does one that cannot even be
-- set aside, and both are told.
create or replace function @schema@.unblock_some(p_children bigint[], out changed int, out told bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_announced int[] := @schema@.partitions_announced();
    v_free      bigint[];
    v_cancelled bigint[];
    v_for_now   bigint[];
    v_again     bigint[];
    v_error     text;
    v_half      int;
    v_first     record;
    v_rest      record;
begin
    begin
        with child as materialized (
            select b.job_id, b.on_parent_failure, b.parents from @schema@.blocked as b where b.job_id = any (p_children)
        ), judged as materialized (
            select c.job_id,
                   case when c.on_parent_failure = 'run' then case when e.n_waiting = 0 then 'go' else 'wait' end
                        when e.n_lost > 0 then 'cancel'
                        when e.n_failed > 0 and c.on_parent_failure = 'cancel' then 'cancel for now'
                        when e.n_failed > 0 or e.n_waiting > 0 then 'wait'
                        else 'go' end as verdict
              from child as c
             cross join lateral (
                   select count(*) filter (where o is null) as n_waiting, count(*) filter (where o <> 0) as n_failed,
                          count(*) filter (where o <> 0 and not @schema@.may_come_back(p.id)) as n_lost
                     from unnest(c.parents) as p(id) cross join lateral @schema@.outcome_of(p.id) as o) as e
        ), locked as materialized (
            select b.job_id, j.verdict from @schema@.blocked as b join judged as j on j.job_id = b.job_id
             where b.job_id = any (p_children)
               and (j.verdict in ('go', 'cancel') or (j.verdict = 'cancel for now') <> (b.cancelled_at is not null))
               and (v_announced = '{}' or b.partition_id <> all (v_announced))
             order by b.job_id for update of b skip locked
        )
        select array(select job_id from locked where verdict in ('go', 'cancel')),
               array(select job_id from locked where verdict = 'cancel'),
               array(select job_id from locked where verdict = 'cancel for now'),
               array(select job_id from locked where verdict = 'wait')
          into v_free, v_cancelled, v_for_now, v_again;
        changed := cardinality(v_free) + cardinality(v_for_now) + cardinality(v_again);
        told := v_cancelled || v_for_now || v_again;
        if v_free <> '{}' then
            perform @schema@.let_go(v_free, v_cancelled);
        end if;
        if v_for_now <> '{}' or v_again <> '{}' then
            perform @schema@.cancel_for_now(v_for_now, v_again);
        end if;
        return;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    p_children := coalesce(v_free || v_for_now || v_again, p_children);
    v_half := cardinality(p_children) / 2;
    if v_half > 0 then
        v_first := @schema@.unblock_some(p_children[:v_half]);
        v_rest := @schema@.unblock_some(p_children[v_half + 1:]);
        changed := v_first.changed + v_rest.changed;
        told := v_first.told || v_rest.told;
        return;
    end if;
    changed := 0;
    begin
        if v_free is null or v_free = '{}' then
            perform @schema@.note_trouble_with('unblock', p_children[1], v_error);
        else
            changed := @schema@.set_blocked_aside(p_children[1],
                case when v_cancelled = '{}' then 'its parents have ended and it cannot be let go: '
                     else 'a parent did not succeed and it cannot be cancelled: ' end || v_error);
        end if;
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform @schema@.note_trouble_with('unblock', p_children[1], v_error);
    end;
    told := '{}';
end $$;

-- Children that the caller has locked are cancelled for now, and others wait again. Locks: their rows.
create or replace function @schema@.cancel_for_now(p_cancelled bigint[], p_again bigint[]) returns void
language sql
begin atomic
    with changed as (
        update @schema@.blocked as b
           set cancelled_at = case when b.job_id = any (p_cancelled) then now() end,
               was_cancelled = true
          from @schema@.blocked as before
         where before.job_id = b.job_id and b.job_id = any (p_cancelled || p_again)
           and (b.cancelled_at is null) = (b.job_id = any (p_cancelled))
        returning b.partition_id, b.cancelled_at, before.was_cancelled as is_counted
    )
    insert into @schema@.tally (partition_id, blocked, cancelled)
    select partition_id, sum(case when cancelled_at is null then 1 else -1 end), count(*) filter (where not is_counted)
      from changed group by partition_id;
end;

-- Sets a child aside whose parents have ended; whether it was blocked still, as a number.
create or replace function @schema@.set_blocked_aside(p_job bigint, p_reason text) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with gone as (
        delete from @schema@.blocked where job_id = p_job
        returning job_id, partition_id, priority, task, parents, cancelled_at
    ), edges as (
        delete from @schema@.dependency as d using gone as g where d.child_id = g.job_id and d.parent_id = any (g.parents)
    ), aside as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, is_parked, reason, task)
        select g.partition_id, g.priority, @schema@.draw_range(), g.job_id / 1024, g.job_id % 1024, g.job_id % 1024 + 1, true,
               left(p_reason, 1000), case when q.is_owned then '' else g.task end
          from gone as g join @schema@.partition as p on p.id = g.partition_id join @schema@.queue as q on q.id = p.queue_id
    ), counted as (
        insert into @schema@.tally (partition_id, blocked, opened) select partition_id, -(cancelled_at is null)::int, 1 from gone
    )
    select count(*) into v_count from gone;
    return v_count;
end $$;

-- Lets these children go, which the caller has locked: those of p_cancelled are cancelled.
create or replace function @schema@.let_go(p_free bigint[], p_cancelled bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queues int[];
    v_epochs int[];
    v_woken  int;
begin
    -- Where a queue has an owner they become ready by the newest map, or are sent to the shard their key lives on.
    v_queues := array(select distinct q.id
                        from @schema@.blocked as b join @schema@.partition as p on p.id = b.partition_id
                        join @schema@.queue as q on q.id = p.queue_id
                       where b.job_id = any (p_free) and q.is_owned);
    v_epochs := array(select @schema@.lock_newest_map(q) from unnest(v_queues) as q);

    with gone as (
        delete from @schema@.blocked where job_id = any (p_free)
        returning job_id, partition_id, priority, task, run_at, parents, cancelled_at, was_cancelled
    ), free as materialized (
        select g.job_id, g.partition_id, g.priority, g.run_at, g.parents, g.cancelled_at, g.was_cancelled, p.queue_id, m.epoch,
               case when m.epoch is null then g.task else '' end as task, g.job_id = any (p_cancelled) as is_cancelled,
               g.run_at is not null and g.run_at > now() as is_later,
               case when m.epoch is not null and j.id is null then @schema@.not_stored() end as reason,
               case when m.epoch is null or j.id is null then g.partition_id
                    else @schema@.partition_for_key(m.partition_ids, j.key, g.partition_id) end as target_id
          from gone as g join @schema@.partition as p on p.id = g.partition_id
          left join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join @schema@.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
          left join lateral (select id, key from @schema@.job_stored where id = g.job_id and m.epoch is not null limit 1) as j on true
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt)
        select t.shard, f.job_id, f.partition_id, 1
          from free as f join @schema@.partition as t on t.id = f.target_id and t.shard <> @schema@.here()
         where not f.is_cancelled and not f.is_later order by f.job_id
        returning job_id
    ), edges as (
        delete from @schema@.dependency as d using free as f where d.child_id = f.job_id and d.parent_id = any (f.parents)
    ), at_once as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, is_parked, reason, changed, epoch, task)
        select target_id, priority, @schema@.draw_range(), job_id / 1024, job_id % 1024, job_id % 1024 + 1, reason is not null, reason,
               case when epoch is not null and reason is null then pg_current_xact_id() end,
               case when reason is null then epoch end, task
          from free where not is_cancelled and not is_later and job_id not in (select job_id from sent) order by job_id
    ), later as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, task)
        select run_at, partition_id, priority, job_id / 1024, job_id % 1024, job_id % 1024 + 1, task
          from free where not is_cancelled and is_later
    ), history as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, finished_at, positions, reason)
        select @schema@.current_slice(), job_id / 1024, partition_id, 2, 1, coalesce(cancelled_at, now()), array[(job_id % 1024)::smallint],
               @schema@.why_cancelled(parents)
          from free where is_cancelled
    ), counted as (
        insert into @schema@.tally (partition_id, blocked, opened, scheduled, cancelled)
        select partition_id, sum(blocked), sum(opened), sum(scheduled), sum(cancelled) from (
            select partition_id, -(cancelled_at is null)::int as blocked, 0 as opened, (not is_cancelled and is_later)::int as scheduled,
                   (is_cancelled and not was_cancelled)::int as cancelled
              from free
            union all
            select case when s.job_id is null then f.target_id else f.partition_id end, 0, 1, 0, 0
              from free as f left join sent as s on s.job_id = f.job_id where not f.is_cancelled and not f.is_later) as c
         group by partition_id
    )
    select count(@schema@.wake(queue_id)) into v_woken from (select distinct queue_id from free) as q;
end $$;
