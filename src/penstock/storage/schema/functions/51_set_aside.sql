-- What cannot be read, or whose end cannot be written, waits for a person.

-- Sets jobs aside that are ready: they are parked with a reason, each in a row of its own, until a person lets them back in
-- (@schema@.let_back) or cancels them. What they wait for is not known: they belong to no map of keys meanwhile, and
-- hold no key. Returns those that were ready. Locks: their ready rows, by range. Index: ready_of_range.
create or replace function @schema@.set_aside(p_jobs bigint[], p_reasons text[]) returns setof bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_none bit(1024) := repeat('0', 1024)::bit(1024);
    v_row  record;
begin
    for v_row in
        select r.ctid as tid, r.partition_id, r.priority, r.pos, r.range, r.attempt, r.rescues, r.ready_at, r.task,
               coalesce(r.members, @schema@.span(r.low, r.high)) as bitmap, g.chosen, g.jobs, g.reasons
          from (select j / 1024 as range, bit_or(@schema@.single((j % 1024)::int)) as chosen, array_agg(j) as jobs,
                       array_agg(left(reason, 1000)) as reasons
                  from unnest(p_jobs, p_reasons) as g(j, reason) group by 1) as g
          join @schema@.ready as r on r.range = g.range
         where r.reason is null and (coalesce(r.members, @schema@.span(r.low, r.high)) & g.chosen) <> v_none
         order by r.range, r.low for update of r
    loop
        delete from @schema@.ready where ctid = v_row.tid and (v_row.bitmap & ~v_row.chosen) = v_none;
        update @schema@.ready set members = v_row.bitmap & ~v_row.chosen
         where ctid = v_row.tid and (v_row.bitmap & ~v_row.chosen) <> v_none;
        return query
            insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason,
                                        ready_at, task)
            select v_row.partition_id, v_row.priority, v_row.pos, v_row.range, j % 1024, j % 1024 + 1, v_row.attempt,
                   v_row.rescues, true, reason, v_row.ready_at, v_row.task
              from unnest(v_row.jobs, v_row.reasons) as g(j, reason) where get_bit(v_row.bitmap, (j % 1024)::int) = 1
            returning range * 1024 + low;
    end loop;
end $$;

-- The same for the jobs of a lease that the caller has locked.
create or replace function @schema@.set_lease_aside(p_lease bigint, p_reason text) returns void
language sql
begin atomic
    with gone as (
        delete from @schema@.lease where id = p_lease
        returning partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at, task
    )
    insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, is_parked, reason, ready_at, task)
    select partition_id, priority, pos, range, m, m + 1, attempt, rescues, true, left(p_reason, 1000), ready_at, task
      from gone cross join lateral unnest(@schema@.positions(low, high, members)) as m;
end;

-- Tells that a duty of upkeep left a job where it is, because it could neither be moved nor set aside. Written down every
-- half minute, as other troubles are: whoever meets it in between waits for nobody.
create or replace function @schema@.note_trouble_with(p_duty text, p_job bigint, p_error text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.trouble where duty = p_duty and noted_at > clock_timestamp() - interval '30 s') then
        return;
    end if;
    insert into @schema@.trouble as t (duty, error, since)
    values (p_duty, format('job %s stays where it is, and cannot be set aside: %s', p_job, left(p_error, 1000)), clock_timestamp())
    on conflict (duty) do update set error = excluded.error, noted_at = excluded.noted_at,
        since = case when t.noted_at > clock_timestamp() - interval '2 minutes' then t.since else excluded.since end;
exception when insufficient_privilege then
    null; -- Who only enqueues keeps no notes.
end $$;

-- Why a job is set aside that is needed and is in no table of jobs.
create or replace function @schema@.not_stored() returns text
language sql immutable parallel safe
return 'it is in no table of jobs';

-- Lets a job that was set aside back in line: where it was, or where its queue has an owner, behind all others, by the map
-- of now, or to the shard its key lives on. Its state then; 'missing' where it is not stored still; null where it was not
-- set aside. Locks: its ready row, then its queue's map, shared.
create or replace function @schema@.let_back(p_job bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_row   record;
    v_job   record;
    v_target record;
begin
    select r.ctid as tid, r.partition_id, r.pos, r.range, r.low, r.high, r.attempt, r.rescues, r.ready_at, r.epoch, p.queue_id,
           q.is_owned into v_row
      from @schema@.ready as r join @schema@.partition as p on p.id = r.partition_id join @schema@.queue as q on q.id = p.queue_id
     where r.range = p_job / 1024 and @schema@.has_member(r.low, r.high, r.members, (p_job % 1024)::int) and r.reason is not null
       for update of r;
    if not found then
        return null;
    end if;
    select priority, task into v_job from @schema@.job_stored where id = p_job limit 1;
    if not found then
        return 'missing';
    end if;
    delete from @schema@.ready where ctid = v_row.tid;
    v_target := v_row;
    if v_row.is_owned then
        select m.partition_id, m.epoch, @schema@.draw_range() as pos into v_target
          from @schema@.partition_by_map(v_row.partition_id, p_job) as m;
    end if;
    insert into @schema@.outbox (shard, job_id, partition_id, attempt)
    select shard, p_job, v_row.partition_id, v_row.attempt
      from @schema@.partition where id = v_target.partition_id and shard <> @schema@.here();
    if not found then
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, ready_at, changed, epoch, task)
        values (v_target.partition_id, v_job.priority, v_target.pos, v_row.range, v_row.low, v_row.high, v_row.attempt, v_row.rescues,
                v_row.ready_at, case when v_row.is_owned then pg_current_xact_id() end, v_target.epoch,
                case when v_row.is_owned then '' else v_job.task end);
        insert into @schema@.tally (partition_id, opened)
        select c.id, c.n from (values (v_row.partition_id, -1), (v_target.partition_id, 1)) as c(id, n)
         where v_row.partition_id <> v_target.partition_id;
        perform @schema@.wake(v_row.queue_id);
    end if;
    return 'ready';
end $$;
