-- What is kept of tables that are let go, and what goes with them.

-- The rows of ranges [p_low, p_high) of slices on their way to a lake, which no longer are parts of `finished`.
create or replace function @schema@.taken_rows(p_low bigint, p_high bigint) returns table (range bigint, positions smallint[])
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_slice int;
begin
    for v_slice in select number from @schema@.slice where taken_at is not null loop
        begin
            return query execute format('select range, positions from @schema@.finished_%s where range >= $1 and range < $2', v_slice)
                using p_low, p_high;
        exception when undefined_table then
            null; -- It is in the lake and was dropped since the list of slices was read.
        end;
    end loop;
end $$;

-- The jobs of ranges [p_low, p_high) that somebody still needs: work, dead letters, history, stages.
create or replace function @schema@.wanted(p_low bigint, p_high bigint) returns setof bigint
language sql stable
begin atomic
    select range * 1024 + m from @schema@.ready, unnest(@schema@.positions(low, high, members)) as m
     where range >= p_low and range < p_high
    union all
    select range * 1024 + m from @schema@.lease, unnest(@schema@.positions(low, high, members)) as m
     where range >= p_low and range < p_high
    union all
    select range * 1024 + m from @schema@.scheduled, unnest(@schema@.positions(low, high, members)) as m
     where range >= p_low and range < p_high
    union all
    select job_id from @schema@.blocked where job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023
    union all
    select job_id from @schema@.outbox where job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023
    union all
    select job_id from @schema@.dead where job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023
    union all
    select range * 1024 + m from @schema@.finished, unnest(positions) as m where range >= p_low and range < p_high
    union all
    select range * 1024 + m from @schema@.taken_rows(p_low, p_high), unnest(positions) as m
    union all
    select range * 1024 + m from @schema@.load_range, generate_series(0, size - 1) as m
     where load_id is null and range >= p_low and range < p_high;
end;

-- Moves what is wanted of a sealed table of jobs to job_kept and marks the table as let go; false, and nothing done,
-- where more than p_few jobs are wanted. One statement finds, deletes and inserts: whatever moves meanwhile, a job is in
-- one table or the other, and every snapshot holds it once. Locks: the table against writers (there are none but who
-- edits a dead letter or reschedules a job), for as long as this takes.
create or replace function @schema@.keep_jobs(p_low bigint, p_high bigint, p_few int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count bigint;
begin
    perform set_config('lock_timeout', '100ms', true);
    select count(*) into v_count from (select from @schema@.wanted(p_low, p_high) limit p_few + 1) as bounded;
    if v_count > p_few then
        return false;
    end if;
    execute format('lock table @schema@.job_%s in share mode', p_low);
    execute format('with moved as (
            delete from @schema@.job_%s where id in (select @schema@.wanted(%s, %s))
            returning id, enqueued_at, partition_id, priority, task, key, args, attributes
        )
        insert into @schema@.job_kept (id, enqueued_at, partition_id, priority, task, key, args, attributes)
        select id, enqueued_at, partition_id, priority, task, key, args, attributes from moved
        on conflict do nothing', p_low, p_low, p_high);
    update @schema@.job_table set is_detached = true where low = p_low;
    return true;
end $$;

-- Counts a sealed slice by outcome, once.
create or replace function @schema@.count_slice(p_number int) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_counts bigint[];
begin
    execute format('select array(select count(f.outcome) from generate_series(0, 4) as o(outcome)
                      left join @schema@.finished_%s as f on f.outcome = o.outcome group by o.outcome order by o.outcome)',
                   p_number) into v_counts;
    update @schema@.slice set counts = v_counts where number = p_number;
    return v_counts;
end $$;

-- Moves from the next pages of a sealed slice into the current one what must be kept: rows whose time has not come
-- (p_days by outcome), and the ends of parents whose children wait already: those that come until it is detached are
-- met by @schema@.keep_parents. Returns whether pages are left. One that an archive took is none of prune's any more,
-- whatever prune held to be so.
create or replace function @schema@.keep_longer(p_number int, p_days double precision[], p_pages int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_from  int;
    v_pages int;
begin
    select kept_pages into v_from from @schema@.slice where number = p_number and taken_at is null for update;
    if not found then
        raise exception using errcode = '55P03', message = format('slice %s was taken by an archive', p_number);
    end if;
    v_pages := pg_relation_size('@schema@.finished_' || p_number) / current_setting('block_size')::int;
    execute format('with gone as (
            delete from @schema@.finished_%s
             where ctid >= %L::tid and ctid < %L::tid
               and (finished_at > now() - make_interval(secs => 86400 * ($1)[outcome + 1])
                    or range in (select parent_id / 1024 from @schema@.waited_for))
            returning range, partition_id, outcome, attempt, finished_at, worker, positions, start_ages, run_times, results, errors, reason)
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, finished_at, worker, positions,
                                       start_ages, run_times, results, errors, reason)
        select @schema@.current_slice(), range, partition_id, outcome, attempt, finished_at, worker, positions,
               start_ages, run_times, results, errors, reason from gone',
        p_number, format('(%s,0)', v_from), format('(%s,0)', v_from + p_pages)) using p_days;
    update @schema@.slice set kept_pages = v_from + p_pages, is_detached = v_from + p_pages >= v_pages
     where number = p_number;
    return v_from + p_pages < v_pages;
end $$;

-- Puts the ends of parents whose children still wait back into the slice in use. Of a slice that stands alone: whoever
-- enqueued a child behind one of its jobs held `finished` and has ended since, so all such children are seen here.
create or replace function @schema@.keep_parents(p_slice int) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count bigint;
begin
    execute format('with gone as (
            delete from @schema@.finished_%s where range in (select parent_id / 1024 from @schema@.waited_for)
            returning range, partition_id, outcome, attempt, finished_at, worker, positions, start_ages, run_times, results, errors, reason
        ), kept as (
            insert into @schema@.finished (slice, range, partition_id, outcome, attempt, finished_at, worker, positions,
                                           start_ages, run_times, results, errors, reason)
            select @schema@.current_slice(), range, partition_id, outcome, attempt, finished_at, worker, positions,
                   start_ages, run_times, results, errors, reason from gone
            returning 1
        ) select count(*) from kept', p_slice) into v_count;
    return v_count;
end $$;

-- Forgets what belongs to the jobs of the next pages of a slice that stands alone: failures, edits, idempotency keys,
-- progress, asks to stop. Where the slice is in a lake the keys live on. Returns whether pages are left.
create or replace function @schema@.forget_slice(p_number int, p_pages int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_from     int;
    v_pages    int;
    v_is_taken boolean;
begin
    select forgotten_pages, taken_at is not null into v_from, v_is_taken
      from @schema@.slice where number = p_number for update;
    v_pages := pg_relation_size('@schema@.finished_' || p_number) / current_setting('block_size')::int;
    execute format('with ended as materialized (
            select range, positions from @schema@.finished_%s where ctid >= %L::tid and ctid < %L::tid
        ), failures as (
            delete from @schema@.failure as x using ended as e
             where x.job_id between e.range * 1024 and e.range * 1024 + 1023 and (x.job_id %% 1024)::smallint = any (e.positions)
        ), edits as (
            delete from @schema@.edit as x using ended as e
             where x.job_id between e.range * 1024 and e.range * 1024 + 1023 and (x.job_id %% 1024)::smallint = any (e.positions)
        ), keys as (
            delete from @schema@.dedup as x using ended as e
             where not $1 and x.job_id between e.range * 1024 and e.range * 1024 + 1023 and (x.job_id %% 1024)::smallint = any (e.positions)
        ), asks as (
            delete from @schema@.cancellation as x using ended as e
             where x.job_id between e.range * 1024 and e.range * 1024 + 1023 and (x.job_id %% 1024)::smallint = any (e.positions)
        )
        delete from @schema@.progress as x using ended as e
         where x.job_id between e.range * 1024 and e.range * 1024 + 1023 and (x.job_id %% 1024)::smallint = any (e.positions)',
        p_number, format('(%s,0)', v_from), format('(%s,0)', v_from + p_pages)) using v_is_taken;
    update @schema@.slice set forgotten_pages = least(v_pages, v_from + p_pages) where number = p_number;
    return v_from + p_pages < v_pages;
end $$;

-- Forgets failures, edits and, unless they outlive their table, idempotency keys of jobs of ranges [p_low, p_high) that were
-- not kept, from p_after on. Returns the id to go on after, or null at the end.
create or replace function @schema@.forget_jobs(p_low bigint, p_high bigint, p_keeps_keys boolean, p_after bigint, p_limit int) returns bigint
language sql
begin atomic
    with next as materialized (
        (select job_id from @schema@.failure
          where job_id > p_after and job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023 order by job_id limit p_limit)
        union all
        (select job_id from @schema@.edit
          where job_id > p_after and job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023 order by job_id limit p_limit)
        union all
        (select job_id from @schema@.dedup
          where not p_keeps_keys and job_id > p_after and job_id between p_low * 1024 and (p_high - 1) * 1024 + 1023
            and @schema@.shard_of(job_id) = @schema@.here() order by job_id limit p_limit)
        order by job_id limit p_limit
    ), unwanted as (
        select distinct job_id from next where not exists (select from @schema@.job_kept as k where k.id = next.job_id)
    ), failures as (
        delete from @schema@.failure where job_id in (select job_id from unwanted)
    ), edits as (
        delete from @schema@.edit where job_id in (select job_id from unwanted)
    ), keys as (
        delete from @schema@.dedup where not p_keeps_keys and job_id in (select job_id from unwanted)
    )
    select max(job_id) from next;
end;

-- Drops kept jobs that nobody needs any more, with what belongs to them, of the next p_limit after p_after. Returns
-- the id to go on after, or null at the end. They are locked by a statement of its own and judged by the next: one that
-- comes back from another shard meanwhile is either locked by whoever brings it or seen to be wanted.
create or replace function @schema@.clean_kept(p_after bigint, p_limit int) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_last   bigint;
    v_locked bigint[];
begin
    select max(id) into v_last from (select id from @schema@.job_kept where id > p_after order by id limit p_limit) as next;
    v_locked := array(select id from @schema@.job_kept where id > p_after and id <= v_last order by id for update skip locked);
    with unwanted as materialized (
        select l.id from unnest(v_locked) as l(id)
         where not exists (
               select from @schema@.wanted(l.id / 1024, l.id / 1024 + 1) as w(id) where w.id = l.id)
    ), failures as (
        delete from @schema@.failure where job_id in (select id from unwanted)
    ), edits as (
        delete from @schema@.edit where job_id in (select id from unwanted)
    ), keys as (
        -- Those that outlive their job go with what is noted of its table.
        delete from @schema@.dedup as d where job_id in (select id from unwanted)
           and not exists (select from @schema@.job_table as p
                            where d.job_id / 1024 >= p.low and d.job_id / 1024 < p.high and p.keys_until > now())
    )
    delete from @schema@.job_kept where id in (select id from unwanted);
    return v_last;
end $$;
