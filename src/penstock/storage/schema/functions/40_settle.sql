-- Settle: what ended leaves the member bitmap of its lease, under the lease's row lock; an empty lease is gone.
-- History is written only for the bits that were cleared, so that a settle repeated after a lost answer
-- changes nothing, and a worker without the lease is told which jobs are not its own any more. A lease is this worker's
-- if its token and range are too: the number alone may be another's by now, on a promoted standby or a restored backup.
-- Leases are found by their number, one by one, never by a scan or a join: a server that last saw the table empty would
-- compare each lease with each.

-- Clears jobs from leases the caller has locked.
create or replace function @schema@.clear_bits(p_jobs @schema@.leased_job[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with cleared as (
        select g.lease_id, count(*) as n from unnest(p_jobs) as g group by g.lease_id
    ), found as (
        select l.id, c.n = @schema@.members_count(l.low, l.high, l.members) as is_whole
          from cleared as c cross join lateral (select id, low, high, members from @schema@.lease where id = c.lease_id limit 1) as l
    ), whole as (
        delete from @schema@.lease where id = any (array(select id from found where is_whole))
    ), members as (
        select g.lease_id, bit_or(@schema@.single(g.position)) as settled
          from unnest(p_jobs) as g join found as f on f.id = g.lease_id and not f.is_whole group by g.lease_id
    )
    update @schema@.lease as l
       set members = coalesce(l.members, @schema@.span(l.low, l.high)) & ~m.settled
      from members as m where l.id = m.lease_id and l.id = any (array(select lease_id from members));
end $$;

-- Settles jobs that succeeded. Arrays are parallel, an element a lease: its token and range, how many jobs of it, which
-- (a member bitmap, or null for all that the lease has), their positions, ages and run times (microseconds) as array
-- literals, their results as a JSON array or null. The facts of a lease go into one row of history as they come,
-- without a row a job on the way; only where the lease does not hold all of them (one was cancelled, say) are they
-- looked at one by one. Returns what was not held. Locks: leases by id.
create or replace function @schema@.settle_succeeded_if_leased(
    p_worker bigint, p_worker_name text, p_leases bigint[], p_tokens bigint[], p_ranges bigint[], p_counts int[], p_members bit(1024)[],
    p_positions text[], p_ages text[], p_runs text[], p_results text[]) returns setof @schema@.leased_job
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_whole   int[];
    v_settled @schema@.leased_job[];
begin
    perform from @schema@.lease where id = any (p_leases) and worker_id = p_worker order by id for update;

    with given as (
        select g.* from unnest(p_leases, p_tokens, p_ranges, p_counts, p_members, p_positions, p_ages, p_runs, p_results)
                        with ordinality as g(lease_id, token, range, n, chosen, positions, ages, runs, results, ordinal)
    ), held as materialized (
        select l.id, l.partition_id, l.attempt, g.*,
               @schema@.members_count(l.low, l.high, l.members) = g.n as is_whole
          from given as g
         cross join lateral (
               select id, partition_id, low, high, members, attempt from @schema@.lease
                where id = g.lease_id and worker_id = p_worker and token = g.token and range = g.range limit 1) as l
         where case when g.chosen is null then @schema@.members_count(l.low, l.high, l.members) = g.n
                    else coalesce(l.members, @schema@.span(l.low, l.high)) & g.chosen = g.chosen end
    ), history as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, worker, positions, start_ages, run_times, results)
        select @schema@.current_slice(), range, partition_id, 0, attempt, p_worker_name,
               positions::smallint[], ages::bigint[], runs::bigint[],
               case when results is not null then array(select json_array_elements(results::json)) end
          from held
    ), gone as (
        delete from @schema@.lease where id = any (array(select id from held where is_whole))
    ), rest as (
        update @schema@.lease as l set members = coalesce(l.members, @schema@.span(l.low, l.high)) & ~h.chosen
          from held as h where l.id = h.id and not h.is_whole and l.id = any (array(select id from held where not is_whole))
    ), counted as (
        insert into @schema@.tally (partition_id, opened, completed)
        select partition_id, -sum(n), sum(n) from held group by partition_id
    )
    select array_agg(ordinal) into v_whole from held;
    if cardinality(v_whole) = cardinality(p_leases) then
        return;
    end if;

    with given as (
        select g.lease_id, g.token, g.range, u.*
          from unnest(p_leases, p_tokens, p_ranges, p_positions, p_ages, p_runs, p_results)
               with ordinality as g(lease_id, token, range, positions, ages, runs, results, ordinal)
         cross join lateral unnest(g.positions::smallint[], g.ages::bigint[], g.runs::bigint[],
                                   array(select json_array_elements(g.results::json))) as u(position, age, run, result)
         where g.ordinal <> all (coalesce(v_whole, '{}'))
    ), mine as materialized (
        select l.id, l.partition_id, l.attempt, g.*
          from given as g
         cross join lateral (
               select id, partition_id, low, high, members, attempt from @schema@.lease
                where id = g.lease_id and worker_id = p_worker and token = g.token and range = g.range limit 1) as l
         where @schema@.has_member(l.low, l.high, l.members, g.position)
    ), history as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, worker, positions, start_ages, run_times, results)
        select @schema@.current_slice(), range, partition_id, 0, attempt, p_worker_name,
               array_agg(position), array_agg(age), array_agg(run), array_agg(result)
          from mine group by id, range, partition_id, attempt
    ), counted as (
        insert into @schema@.tally (partition_id, opened, completed)
        select partition_id, -count(*), count(*) from mine group by partition_id
    )
    select array_agg(row(id, position)::@schema@.leased_job) into v_settled from mine;
    perform @schema@.clear_bits(v_settled);
    return query
        select g.lease_id, u.position from unnest(p_leases, p_positions) with ordinality as g(lease_id, positions, ordinal)
         cross join lateral unnest(g.positions::smallint[]) as u(position)
         where g.ordinal <> all (coalesce(v_whole, '{}'))
        except select lease_id, position from unnest(v_settled);
end $$;

-- Settles every other end, an object a job in p_ends: lease, token, range, position, end, error, due_in, age, run. The ends:
--   retry   counts an attempt and waits due_in seconds (0: at once)     snooze   waits, counts nothing, is as suspect as before
--   failed  goes to the dead letters                                    release  never started: ready again, as it was
--   cancelled, discarded, expired                                       are history, with the reason as their error
--   suspect  as release, but in no batch any more: its batch's process died, and any of it may be the one that killed it
-- On a queue with an owner a retry or snooze keeps its `pos` and holds its key, where the queue says so; otherwise it
-- goes to the end of the order when it is due, by the map of keys of that time: even at once it goes by way of `scheduled`.
-- Locks: leases by id.
create or replace function @schema@.settle_ended_if_leased(p_worker bigint, p_worker_name text, p_ends json)
returns setof @schema@.leased_job
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_settled @schema@.leased_job[];
    v_waiting bigint[];
begin
    perform from @schema@.lease
      where id in (select (value ->> 'lease')::bigint from json_array_elements(p_ends)) and worker_id = p_worker
      order by id for update;

    with mine as materialized (
        select l.id, l.range, l.partition_id, l.priority, l.pos, l.attempt, l.rescues, l.ready_at, l.task,
               l.epoch, q.id as queue_id, q.is_owned, q.per_key is not null and q.holds_on_retry as is_held, q.halts_on_dead,
               q.max_wait_seconds, g."end" as told,
               case when q.is_owned then pg_current_xact_id() end as changed,
               q.is_owned and not (q.per_key is not null and q.holds_on_retry) or g.due_in > 0 as is_later,
               g.position, g.error, g.due_in, l.range * 1024 + g.position as job_id, g.age, g.run,
               -- Whoever was asked to stop does not run again.
               case when g."end" in ('retry', 'snooze', 'release', 'suspect') and exists (
                        select from @schema@.cancellation as c where c.job_id = l.range * 1024 + g.position)
                    then 'cancelled' else g."end" end as "end"
          from json_to_recordset(p_ends) as g(lease bigint, token bigint, range bigint, position smallint, "end" text,
                                              error text, due_in double precision, age bigint, run bigint)
         cross join lateral (
               select id, range, partition_id, priority, pos, low, high, members, attempt, rescues, ready_at, task, epoch
                 from @schema@.lease
                where id = g.lease and worker_id = p_worker and token = g.token and range = g.range limit 1) as l
         cross join lateral (
               select queue.id, is_owned, per_key, holds_on_retry, halts_on_dead, max_wait_seconds
                 from @schema@.partition join @schema@.queue on queue.id = partition.queue_id
                where partition.id = l.partition_id limit 1) as q
         where @schema@.has_member(l.low, l.high, l.members, g.position)
    ), failed as materialized (
        select m.job_id, m.partition_id, m.attempt, m.age, m.error, m."end", m.queue_id, t.task, s.shape,
               @schema@.cause_of(m.queue_id, t.task, s.shape) as cause
          from mine as m
          left join lateral (select task from @schema@.job_stored where id = m.job_id and m.is_owned limit 1) as j on true
         cross join lateral (select case when m.is_owned then j.task else m.task end as task) as t
         cross join lateral (select @schema@.error_shape(m.error) as shape offset 0) as s
         where m.told in ('retry', 'failed')
    ), attempts as (
        insert into @schema@.failure (job_id, attempt, worker, error)
        select job_id, attempt, p_worker_name, coalesce(error, '') from failed
    ), causes as (
        insert into @schema@.cause_tally (cause, queue_id, task, shape, failed, dead)
        select cause, queue_id, coalesce(min(task), ''), min(shape), count(*), count(*) filter (where "end" = 'failed')
          from failed group by cause, queue_id
    ), again_at_once as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, changed, epoch, task)
        select partition_id, priority, case when is_held then pos else @schema@.draw_range() end, range, position,
               position + 1, attempt + ("end" = 'retry')::int, case "end" when 'snooze' then rescues else 0 end, changed, epoch,
               task
          from mine where "end" in ('retry', 'snooze') and not is_later
    ), again_later as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, attempt, rescues, pos, epoch, task)
        select now() + make_interval(secs => greatest(due_in, 0)), partition_id, priority, range, position, position + 1,
               attempt + ("end" = 'retry')::int, case "end" when 'snooze' then rescues else 0 end,
               case when is_held then pos end, case when is_held then epoch end, task
          from mine where "end" in ('retry', 'snooze') and is_later
    ), dead_letters as (
        insert into @schema@.dead (job_id, partition_id, task, attempt, started_at, worker, error, cause)
        select job_id, partition_id, task, attempt, now() - make_interval(secs => age / 1e6), p_worker_name, error, cause
          from failed where "end" = 'failed'
    ), halts as (
        insert into @schema@.halted (queue_id, key, job_id, epoch)
        select distinct on (queue_id, j.key) queue_id, j.key, job_id, epoch
          from mine cross join lateral (select key from @schema@.job_stored where id = job_id limit 1) as j
         where "end" = 'failed' and halts_on_dead and j.key is not null
        on conflict do nothing
    ), released as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at,
                                    changed, epoch, task)
        select partition_id, priority, pos, range, min(position), max(position) + 1,
               case when count(*) <= max(position) - min(position) then bit_or(@schema@.single(position)) end, attempt,
               case "end" when 'suspect' then least(rescues + 1, 2) else rescues end, ready_at,
               case when is_owned then pg_current_xact_id() end, epoch, task
          from mine where "end" in ('release', 'suspect')
         group by id, partition_id, priority, pos, range, attempt, rescues, ready_at, is_owned, epoch, task, "end"
    ), history as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, worker, positions, start_ages, run_times, errors)
        select @schema@.current_slice(), range, partition_id,
               case "end" when 'cancelled' then 2 when 'discarded' then 3 else 4 end, attempt, p_worker_name,
               array_agg(position), array_agg(age), array_agg(run),
               array_agg(case "end" when 'cancelled' then coalesce(
                                   (select c.reason from @schema@.cancellation as c where c.job_id = mine.job_id), error)
                                    when 'expired' then coalesce(error, @schema@.why_expired(max_wait_seconds))
                                    else error end)
          from mine where "end" in ('cancelled', 'discarded', 'expired')
         group by id, range, partition_id, attempt, "end"
    ), asks as (
        delete from @schema@.cancellation where job_id in (select job_id from mine where "end" not in ('release', 'suspect'))
    ), counted as (
        insert into @schema@.tally (partition_id, opened, scheduled, dead, failed, cancelled, discarded, expired)
        select partition_id,
               -count(*) filter (where "end" in ('failed', 'cancelled', 'discarded', 'expired') or "end" in ('retry', 'snooze') and is_later),
               count(*) filter (where "end" in ('retry', 'snooze') and is_later),
               count(*) filter (where "end" = 'failed'), count(*) filter (where "end" = 'failed'),
               count(*) filter (where "end" = 'cancelled'), count(*) filter (where "end" = 'discarded'),
               count(*) filter (where "end" = 'expired')
          from mine where "end" not in ('release', 'suspect') group by partition_id
    )
    select array_agg(row(id, position)::@schema@.leased_job),
           array_agg(job_id) filter (where "end" in ('snooze', 'release', 'suspect') and attempt = 1)
      into v_settled, v_waiting from mine;

    perform @schema@.clear_bits(v_settled);
    if v_waiting is not null then
        perform @schema@.drop_unique(v_waiting);
    end if;
    return query
        select (value ->> 'lease')::bigint, (value ->> 'position')::smallint from json_array_elements(p_ends)
        except select lease_id, position from unnest(v_settled);
end $$;

-- Moves one running job to a lease of its own, so that its handler's transaction can settle it without
-- holding its neighbours' lease. Returns the new lease's number, or null where the job is not held.
create or replace function @schema@.split_lease_if_leased(
    p_worker bigint, p_lease bigint, p_token bigint, p_range bigint, p_position smallint) returns bigint
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_lease @schema@.lease;
begin
    v_lease := (
        select l from @schema@.lease as l
         where l.id = p_lease and l.worker_id = p_worker and l.token = p_token and l.range = p_range for update);
    if v_lease.id is null or not @schema@.has_member(v_lease.low, v_lease.high, v_lease.members, p_position) then
        -- Asked again after a lost answer: it may have a lease of its own already.
        return (select l.id from @schema@.lease as l
                 where l.range = p_range and l.worker_id = p_worker and l.token = p_token
                   and l.low = p_position and l.high = p_position + 1 and l.id <> p_lease);
    end if;
    perform @schema@.clear_bits(array[row(p_lease, p_position)::@schema@.leased_job]);
    v_lease.id := nextval('@schema@.lease_number');
    insert into @schema@.lease (id, token, worker_id, partition_id, priority, pos, range, low, high, attempt, rescues,
                                is_ahead, ready_at, claimed_at, epoch, task, batch)
    values (v_lease.id, v_lease.token, v_lease.worker_id, v_lease.partition_id, v_lease.priority, v_lease.pos, v_lease.range,
            p_position, p_position + 1, v_lease.attempt, v_lease.rescues, false, v_lease.ready_at, v_lease.claimed_at,
            v_lease.epoch, v_lease.task, v_lease.batch);
    return v_lease.id;
end $$;
