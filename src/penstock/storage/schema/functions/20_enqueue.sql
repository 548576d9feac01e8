-- Enqueue: jobs are written once, then one row a range makes them visible, at commit, with the caller's
-- transaction. No row is locked that another producer wants.

-- Makes written ranges visible: ready now, or scheduled where run_at lies ahead; one tally row a partition.
-- The arrays are parallel, an element a range; p_epochs: the map each was routed by, on queues with an owner.
create or replace function @schema@.make_visible(
    p_queues int[], p_partitions int[], p_priorities smallint[], p_tasks text[], p_run_ats timestamptz[],
    p_ranges bigint[], p_sizes smallint[], p_members bit(1024)[], p_epochs int[] default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with given as (
        select g.*, g.run_at is not null and g.run_at > now() as is_later
          from unnest(p_partitions, p_priorities, p_tasks, p_run_ats, p_ranges, p_sizes, p_members, p_epochs)
               as g(partition_id, priority, task, run_at, range, size, members, epoch)
    ), at_once as (
        insert into @schema@.ready (partition_id, priority, pos, range, low, high, members, task, epoch, changed)
        select partition_id, priority, range, range, 0, size, members, task, epoch,
               case when epoch is not null then pg_current_xact_id() end
          from given where not is_later
    ), later as (
        insert into @schema@.scheduled (due_at, partition_id, priority, range, low, high, members, task, epoch)
        select run_at, partition_id, priority, range, 0, size, members, task, epoch from given where is_later
    ), counted as (
        select partition_id, is_later, @schema@.members_count(0::smallint, size, members) as n from given
    )
    insert into @schema@.tally (partition_id, enqueued, opened, scheduled)
    select partition_id, sum(n), coalesce(sum(n) filter (where not is_later), 0), coalesce(sum(n) filter (where is_later), 0)
      from counted group by partition_id;
    perform @schema@.wake(queue_id) from (select distinct unnest(p_queues)) as q(queue_id);
end $$;

-- Writes one job that may run now on a queue with an owner; null, and nothing written, where the queue has another map by
-- now. Statement by statement: one of three writes that depends on the lock takes longer to set up.
create or replace function @schema@.enqueue_one_if_mapped(
    p_queue int, p_epoch int, p_partition int, p_priority smallint, p_task text, p_key bytea, p_args json,
    p_attributes jsonb) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint;
begin
    if not @schema@.lock_map(p_queue, p_epoch) then
        return null;
    end if;
    v_range := @schema@.draw_range();
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (v_range * 1024, now(), p_partition, p_priority, p_task, p_key, p_args, p_attributes);
    insert into @schema@.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)
    values (p_partition, p_priority, v_range, v_range, 0, 1, '', p_epoch, pg_current_xact_id());
    insert into @schema@.tally (partition_id, enqueued, opened) values (p_partition, 1, 1);
    perform @schema@.wake(p_queue);
    return v_range * 1024;
end $$;

-- Writes one range of a few jobs of any tasks on a queue with an owner; the first id, or null as above. p_args is a
-- JSON array of the jobs' arguments, taken apart verbatim.
create or replace function @schema@.enqueue_few_if_mapped(
    p_queue int, p_epoch int, p_partition int, p_priority smallint, p_run_at timestamptz, p_tasks text[],
    p_keys bytea[], p_args json, p_attributes jsonb) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint;
begin
    if not @schema@.lock_map(p_queue, p_epoch) then
        return null;
    end if;
    v_range := @schema@.draw_range();
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    select v_range * 1024 + a.n - 1, now(), p_partition, p_priority, p_tasks[a.n], p_keys[a.n], a.value,
           @schema@.with_run_at(nullif(p_attributes -> (a.n - 1)::int, 'null'), case when p_run_at > now() then p_run_at end)
      from json_array_elements(p_args) with ordinality as a(value, n);
    perform @schema@.make_visible(array[p_queue], array[p_partition], array[p_priority], array[''], array[p_run_at],
        array[v_range], array[cardinality(p_tasks)::smallint], array[null::bit(1024)], array[p_epoch]);
    return v_range * 1024;
end $$;

-- Writes children: always blocked at first; whether their parents have ended is decided in a later
-- transaction (deciding here would be write skew: the child could wait for ever).
create or replace function @schema@.block_jobs(
    p_ids bigint[], p_partitions int[], p_priorities smallint[], p_tasks text[], p_run_ats timestamptz[],
    p_on_parent_failures text[], p_parents json[]) returns void
language sql
begin atomic
    with given as (
        select g.*, array(select value::bigint from json_array_elements_text(g.parents_json)) as parents
          from unnest(p_ids, p_partitions, p_priorities, p_tasks, p_run_ats, p_on_parent_failures, p_parents)
               as g(id, partition_id, priority, task, run_at, on_parent_failure, parents_json)
    ), children as (
        insert into @schema@.blocked (job_id, partition_id, priority, task, run_at, on_parent_failure, parents)
        select id, partition_id, priority, task, run_at, on_parent_failure, parents from given
    ), edges as (
        insert into @schema@.dependency (parent_id, child_id, is_elsewhere)
        select distinct parent, id, @schema@.shard_of(parent) <> @schema@.here() from given, unnest(parents) as parent
    )
    insert into @schema@.tally (partition_id, enqueued, blocked)
    select partition_id, count(*), count(*) from given group by partition_id;
end;
