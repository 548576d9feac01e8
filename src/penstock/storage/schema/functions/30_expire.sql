-- What has waited longer than its queue allows.

-- Ends what stands at the head of a partition and has waited longer than its queue allows. Retries and
-- rescued jobs never expire. Looks at the first rows of each priority only: the oldest stand there. How many jobs it
-- moved: one whose end is refused is set aside.
create or replace function @schema@.expire_head(p_partition int, p_max_wait interval) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows tid[];
begin
    -- Only what is late is locked: a lock on the others would hide them from the claims beside this one.
    with late as materialized (
        select r.tid from generate_series(0, 9) as level(priority)
         cross join lateral (
               select ctid as tid, attempt, rescues, ready_at from @schema@.ready
                where partition_id = p_partition and not is_parked and priority = level.priority
                order by pos limit 100) as r
         where r.attempt = 1 and r.rescues = 0 and r.ready_at < now() - p_max_wait
    ), locked as materialized (
        select ctid as tid from @schema@.ready where ctid = any (array(select tid from late)) for update skip locked
    )
    select array(select tid from locked) into v_rows;
    if v_rows = '{}' then
        return 0;
    end if;
    return @schema@.expire_some(p_partition, v_rows, @schema@.why_expired(extract(epoch from p_max_wait)::double precision));
end $$;

-- Why a job has expired.
create or replace function @schema@.why_expired(p_max_wait double precision) returns text
language sql stable parallel safe
return 'max_wait ' || p_max_wait || ' s passed';

-- Ends these rows, which the caller has locked; where that is refused, by halves, then job by job. A job that is refused
-- alone is set aside, and where not even that can be written it stays where it is, and is told. Only who has something to
-- end pays for a block that catches.
create or replace function @schema@.expire_some(p_partition int, p_rows tid[], p_reason text) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_error text;
    v_job   bigint;
begin
    begin
        return @schema@.expire_rows(p_partition, p_rows, p_reason);
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        get stacked diagnostics v_error = message_text;
    end;
    if cardinality(p_rows) = 1 then
        p_rows := @schema@.take_ready_apart(p_rows[1]);
    end if;
    if cardinality(p_rows) > 1 then
        return @schema@.expire_some(p_partition, p_rows[:cardinality(p_rows) / 2], p_reason)
             + @schema@.expire_some(p_partition, p_rows[cardinality(p_rows) / 2 + 1:], p_reason);
    end if;
    select range * 1024 + low into v_job from @schema@.ready where ctid = p_rows[1];
    begin
        return (select count(*) from @schema@.set_aside(array[v_job], array['its end (expired) cannot be written: ' || v_error]));
    exception when data_exception or integrity_constraint_violation or data_corrupted or index_corrupted then
        perform @schema@.note_trouble_with('expire', v_job, v_error);
        return 0;
    end;
end $$;

-- Ends these rows, all or none; how many jobs.
create or replace function @schema@.expire_rows(p_partition int, p_rows tid[], p_reason text) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with gone as (
        delete from @schema@.ready where ctid = any (p_rows)
        returning range, attempt, @schema@.positions(low, high, members) as positions
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
        select @schema@.current_slice(), range, p_partition, 4, attempt, positions, p_reason from gone
        returning cardinality(positions) as n
    ), counted as (
        insert into @schema@.tally (partition_id, opened, expired)
        select p_partition, -sum(n), sum(n) from ended having sum(n) > 0
    )
    select coalesce(sum(n), 0) into v_count from ended;
    return v_count;
end $$;

-- Gives each job of a ready row a row of its own, like it and at the same `pos`; where those are.
create or replace function @schema@.take_ready_apart(p_row tid) returns tid[]
language sql
begin atomic
    with gone as (
        delete from @schema@.ready where ctid = p_row
        returning partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at, changed, epoch, task
    ), parts as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, attempt, rescues, ready_at, changed, epoch, task)
        select partition_id, priority, pos, range, m, m + 1, attempt, rescues, ready_at, changed, epoch, task
          from gone cross join lateral unnest(@schema@.positions(low, high, members)) as m
        returning ctid
    )
    select array(select ctid from parts);
end;
