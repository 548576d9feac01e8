-- Dead letters come back, or become history.

-- Dead letters become ready again, behind what is ready already; those of one range that were on the same attempt go
-- together. Where the queue has an owner they become ready by the newest map. The one for which a key halted is
-- the first of its key again, where it was and by its own map: the others of the key may wait there, by that map, and
-- must not overtake it. That map is not drained while the key is halted, and locked meanwhile. Those whose key lives on
-- another shard by now are sent there. The row's lock is the fence, the attempts made
-- stay in `failure`. Returns those that were dead. Locks: their rows by id, then maps.
create or replace function @schema@.retry_dead(p_ids bigint[]) returns setof bigint
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queues int[];
    v_epochs int[];
    v_done   bigint[];
begin
    perform from @schema@.dead where job_id = any (p_ids) order by job_id for update;
    v_queues := array(select distinct q.id
                        from @schema@.dead as d join @schema@.partition as p on p.id = d.partition_id
                        join @schema@.queue as q on q.id = p.queue_id
                       where d.job_id = any (p_ids) and q.is_owned order by q.id);
    if v_queues <> '{}' then
        v_epochs := array(select @schema@.lock_newest_map(q) from unnest(v_queues) as q);
        perform from @schema@.queue_map where queue_id = any (v_queues) and state not in ('drained', 'withdrawn') order by queue_id, epoch for share;
    end if;

    with gone as (
        -- One that is not stored stays: nothing could run.
        delete from @schema@.dead as d
         where d.job_id = any (p_ids) and exists (select from @schema@.job_stored as j where j.id = d.job_id)
        returning job_id, partition_id, task, attempt, cause
    ), stored as (
        select distinct on (id) id, priority, key from (
            select id, priority, key from @schema@.job where id = any (p_ids)
            union all
            select id, priority, key from @schema@.job_kept where id = any (p_ids)) as j
    ), ended as (
        delete from @schema@.halted where queue_id = any (v_queues) and job_id = any (p_ids)
        returning queue_id, key, job_id, epoch
    ), given as (
        select g.job_id, g.attempt, j.priority, j.key, p.queue_id, g.partition_id,
               case when m.epoch is null then g.task else '' end as task, m.epoch, m.partition_ids, e.epoch as first_epoch
          from gone as g join stored as j on j.id = g.job_id join @schema@.partition as p on p.id = g.partition_id
          left join unnest(v_queues, v_epochs) as h(queue_id, epoch) on h.queue_id = p.queue_id
          left join @schema@.queue_map as m on m.queue_id = h.queue_id and m.epoch = h.epoch
          left join ended as e on e.job_id = g.job_id
    ), routed as materialized (
        select g.job_id, g.attempt, g.priority, g.queue_id, g.key, g.task,
               case when g.first_epoch is null and g.epoch is not null
                    then @schema@.partition_for_key(g.partition_ids, g.key, g.partition_id) else g.partition_id end as partition_id,
               coalesce(g.first_epoch, g.epoch) as epoch,
               case when g.first_epoch is not null then g.job_id / 1024 end as pos, g.partition_id as came_from
          from given as g
    ), sent as (
        insert into @schema@.outbox (shard, job_id, partition_id, attempt)
        select t.shard, p.job_id, p.came_from, least(p.attempt + 1, 32767)
          from routed as p join @schema@.partition as t on t.id = p.partition_id and t.shard <> @schema@.here()
         order by p.job_id
        returning job_id
    ), listed as (
        -- What is left by an earlier map may be known key by key.
        update @schema@.map_rest as r
           set keys = case when r.keys is not null then array(select unnest(r.keys) union select unnest(p.keys)) end,
               found = array(select unnest(r.found) union select unnest(p.keys))
          from (select queue_id, epoch, partition_id, array_agg(key) as keys
                  from routed where pos is not null group by queue_id, epoch, partition_id) as p
         where r.queue_id = p.queue_id and r.epoch = p.epoch and r.partition_id = p.partition_id
    ), again as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, attempt, changed, epoch, task)
        select partition_id, priority, coalesce(pos, @schema@.draw_range()), range, low, high, members, attempt,
               case when epoch is not null then pg_current_xact_id() end, epoch, task
          from (select partition_id, priority, job_id / 1024 as range, min(job_id % 1024)::smallint as low,
                       (max(job_id % 1024) + 1)::smallint as high,
                       case when count(*) <= max(job_id % 1024) - min(job_id % 1024)
                            then bit_or(@schema@.single((job_id % 1024)::int)) end as members,
                       least(attempt + 1, 32767)::smallint as attempt, task, pos, epoch
                  from routed where job_id not in (select job_id from sent)
                 group by partition_id, priority, job_id / 1024, attempt, task, pos, epoch
                 order by job_id / 1024) as joined
        returning partition_id
    ), counted as (
        insert into @schema@.tally (partition_id, dead, opened)
        select partition_id, sum(dead), sum(opened) from (
            select partition_id, -1 as dead, 0 as opened from gone
            union all
            select case when job_id in (select job_id from sent) then came_from else partition_id end, 0, 1 from routed) as c
         group by partition_id
    ), causes as (
        insert into @schema@.cause_tally (cause, dead) select cause, -count(*) from gone group by cause
    ), woken as (
        select count(@schema@.wake(queue_id)) as n from (select distinct queue_id from routed) as q
    )
    select array_agg(gone.job_id) into v_done from gone, woken;
    return query select unnest(v_done);
end $$;

-- Whether two texts of arguments say the same, whatever their blanks and the order of their names.
create or replace function @schema@.are_same_args(p_one json, p_other json) returns boolean
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    return p_one::text = p_other::text or p_one::jsonb::text = p_other::jsonb::text;
exception when data_exception or program_limit_exceeded then
    return false; -- json holds what jsonb does not, such as the character 0.
end $$;

-- A dead letter becomes ready again with other arguments, and what they were is kept; false where it is none. With the same
-- arguments there is nothing to keep. Its row is
-- locked before anything else: of two who do so the second finds no dead letter. So is its table of jobs, against whoever
-- keeps what is wanted of it: the job stays where it is found. Locks: the dead letter, its table of jobs, its job; then as
-- @schema@.retry_dead.
create or replace function @schema@.retry_dead_edited(p_job bigint, p_args json, p_by text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_low bigint;
begin
    perform from @schema@.dead where job_id = p_job for update;
    if not found then
        return false;
    end if;
    select low into v_low from @schema@.job_table where p_job / 1024 >= low and p_job / 1024 < high and not is_detached;
    if found then
        begin
            execute format('lock table @schema@.job_%s in row exclusive mode', v_low);
        exception when undefined_table then
            v_low := null; -- It was let go since: what was wanted of it is kept.
        end;
    end if;
    insert into @schema@.edit (job_id, edited_by, args)
    select p_job, p_by || ' as ' || session_user, j.args
      from (select args from @schema@.job_stored where id = p_job limit 1) as j where not @schema@.are_same_args(j.args, p_args);
    if found then
        update @schema@.job_kept set args = p_args where id = p_job;
        if not found and v_low is not null then
            execute format('update @schema@.job_%s set args = $1 where id = $2', v_low) using p_args, p_job;
        end if;
    end if;
    return exists (select from @schema@.retry_dead(array[p_job]));
end $$;

-- Dead letters become history: failed, at the time they failed. Returns how many. Locks: their rows by id.
create or replace function @schema@.bury_dead(p_ids bigint[]) returns bigint
language sql
begin atomic
    with gone as (
        delete from @schema@.dead where job_id = any (array(
            select job_id from @schema@.dead where job_id = any (p_ids) order by job_id for update skip locked))
        returning job_id, partition_id, attempt, started_at, failed_at, worker, error, cause
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, finished_at, worker, positions, start_ages, errors)
        select @schema@.current_slice(), job_id / 1024, partition_id, 1, attempt, failed_at, worker,
               array_agg((job_id % 1024)::smallint order by job_id),
               array_agg((extract(epoch from failed_at - started_at) * 1000000)::bigint order by job_id), array_agg(error order by job_id)
          from gone group by job_id / 1024, partition_id, attempt, failed_at, worker
    ), counted as (
        insert into @schema@.tally (partition_id, dead) select partition_id, -count(*) from gone group by partition_id
    ), causes as (
        insert into @schema@.cause_tally (cause, dead) select cause, -count(*) from gone group by cause
    )
    select count(*) from gone;
end;
