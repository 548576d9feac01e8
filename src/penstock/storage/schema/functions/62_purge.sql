-- The purges take whole rows from p_from on, as many as p_limit, end them as cancelled for p_reason, and tell where to go on, how
-- many jobs it were, and their ranges. Rows that somebody has locked are passed over. continue_at is null: nothing
-- found.

-- Index: ready_in_order.
create or replace function @schema@.purge_ready(
    p_partition int, p_priority int, p_from bigint, p_until bigint, p_limit int,
    p_reason text default null, out continue_at bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from @schema@.ready where ctid = any (array(
            select ctid from @schema@.ready
             where partition_id = p_partition and not is_parked and priority = p_priority and pos between p_from and p_until
             order by pos limit p_limit for update skip locked))
        returning pos, range, attempt,
                  case when high = low + 1 then array[low] else @schema@.positions(low, high, members) end as positions
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
        select @schema@.current_slice(), range, p_partition, 2, attempt, positions, p_reason from gone
    ), counted as (
        insert into @schema@.tally (partition_id, opened, cancelled)
        select p_partition, -sum(cardinality(positions)), sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(pos), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: ready_out_of_order.
create or replace function @schema@.purge_parked(
    p_partition int, p_from bigint, p_until bigint, p_limit int, p_reason text default null,
    out continue_at bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from @schema@.ready where ctid = any (array(
            select ctid from @schema@.ready
             where partition_id = p_partition and (pos <> range or is_parked) and is_parked and range between p_from and p_until
             order by range limit p_limit for update skip locked))
        returning range, attempt,
                  case when high = low + 1 then array[low] else @schema@.positions(low, high, members) end as positions
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
        select @schema@.current_slice(), range, p_partition, 2, attempt, positions, p_reason from gone
    ), counted as (
        insert into @schema@.tally (partition_id, opened, cancelled)
        select p_partition, -sum(cardinality(positions)), sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(range), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: scheduled_of_partition.
create or replace function @schema@.purge_scheduled(
    p_partition int, p_from bigint, p_until bigint, p_limit int, p_reason text default null,
    out continue_at bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from @schema@.scheduled where ctid = any (array(
            select ctid from @schema@.scheduled
             where partition_id = p_partition and range between p_from and p_until
             order by range limit p_limit for update skip locked))
        returning range, attempt,
                  case when high = low + 1 then array[low] else @schema@.positions(low, high, members) end as positions
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
        select @schema@.current_slice(), range, p_partition, 2, attempt, positions, p_reason from gone
    ), counted as (
        insert into @schema@.tally (partition_id, scheduled, cancelled)
        select p_partition, -sum(cardinality(positions)), sum(cardinality(positions)) from gone having count(*) > 0
    )
    select max(range), coalesce(sum(cardinality(positions)), 0), coalesce(array_agg(range), '{}') from gone;
end;

-- Index: blocked_of_partition. The children of one range end as one row of history.
create or replace function @schema@.purge_blocked(
    p_partition int, p_from bigint, p_until bigint, p_limit int, p_reason text default null,
    out continue_at bigint, out jobs bigint, out ranges bigint[])
language sql
begin atomic
    with gone as (
        delete from @schema@.blocked where job_id = any (array(
            select job_id from @schema@.blocked
             where partition_id = p_partition and job_id >= p_from * 1024 and job_id < (p_until + 1) * 1024 and cancelled_at is null
             order by job_id limit p_limit for update skip locked))
        returning job_id, parents, was_cancelled
    ), edges as (
        delete from @schema@.dependency as d using gone as g where d.parent_id = any (g.parents) and d.child_id = g.job_id
    ), ended as (
        insert into @schema@.finished (slice, range, partition_id, outcome, attempt, positions, reason)
        select @schema@.current_slice(), job_id / 1024, p_partition, 2, 1, array_agg((job_id % 1024)::smallint order by job_id), p_reason
          from gone group by job_id / 1024
    ), counted as (
        insert into @schema@.tally (partition_id, blocked, cancelled)
        select p_partition, -count(*), count(*) filter (where not was_cancelled) from gone having count(*) > 0
    )
    select max(job_id / 1024), count(*), coalesce(array_agg(distinct job_id / 1024), '{}') from gone;
end;
