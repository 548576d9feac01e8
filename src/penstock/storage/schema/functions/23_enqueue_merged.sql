-- Calls that met: the jobs of several producers in one statement and one transaction.

-- Writes one range for each element of the arrays from p_queues to p_sizes, with its jobs; the number of each range. Null,
-- and nothing of that range is written, where its queue has another map by now, or somebody is changing it: no call waits
-- for a lock that only another one needs. Of the jobs, range after range: p_args is a JSON array of their arguments, taken
-- apart verbatim, and p_attributes one of what else is kept, null for a job without; p_job_ranges says which range each is
-- of (null: all are of the first), and p_job_tasks has the tasks of those whose range is of several. Behind a pooler the
-- receipt is written with them: see @schema@.note_written. Locks: the maps, shared with all producers.
create or replace function @schema@.enqueue_merged(
    p_queues int[], p_epochs int[], p_partitions int[], p_priorities smallint[], p_tasks text[], p_run_ats timestamptz[],
    p_delays double precision[], p_sizes smallint[], p_job_ranges smallint[], p_job_tasks text[], p_keys bytea[],
    p_args json, p_attributes jsonb, p_token bigint, p_kept_seconds double precision) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ranges bigint[];
    v_due    timestamptz[];
    v_lows   int[];
    v_low    int := 0;
    v_first  bigint;
    v_is_old boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
    for i in 1..cardinality(p_queues) loop
        v_lows[i] := v_low;
        v_low := v_low + p_sizes[i];
        v_due[i] := coalesce(p_run_ats[i], now() + make_interval(secs => p_delays[i]));
        v_ranges[i] := null;
        if p_epochs[i] is not null then
            perform from @schema@.queue_map
              where queue_id = p_queues[i] and epoch = p_epochs[i] and state = 'open' for key share skip locked;
            continue when not found;
            -- As in lock_map: it is what it was when the transaction began, or this is refused (40001).
            if v_is_old then
                perform from @schema@.queue_map where queue_id = p_queues[i] and epoch = p_epochs[i] for share skip locked;
                continue when not found;
            end if;
        end if;
        v_ranges[i] := @schema@.draw_range();
        v_first := coalesce(v_first, v_ranges[i] * 1024);
    end loop;
    if v_first is null then
        return v_ranges;
    end if;
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    select v_ranges[j.range] * 1024 + j.n - 1 - v_lows[j.range], now(), p_partitions[j.range], p_priorities[j.range],
           coalesce(j.task, p_tasks[j.range]), j.key, j.args,
           @schema@.with_run_at(nullif(j.attributes, 'null'), case when v_due[j.range] > now() then v_due[j.range] end)
      from (select coalesce(g.range, 1) as range, g.task, g.key, g.args, g.attributes, g.n
              from rows from (json_array_elements(p_args), jsonb_array_elements(p_attributes), unnest(p_job_ranges),
                              unnest(p_job_tasks), unnest(p_keys))
                   with ordinality as g(args, attributes, range, task, key, n)) as j
     where v_ranges[j.range] is not null;
    perform @schema@.make_visible(
                array_agg(w.queue_id), array_agg(w.partition_id), array_agg(w.priority), array_agg(w.task), array_agg(w.due_at),
                array_agg(w.range), array_agg(w.size), array_agg(null::bit(1024)), array_agg(w.epoch))
       from unnest(p_queues, p_partitions, p_priorities, p_tasks, v_due, v_ranges, p_sizes, p_epochs)
            as w(queue_id, partition_id, priority, task, due_at, range, size, epoch)
      where w.range is not null;
    if p_token is not null then
        perform @schema@.note_written(p_token, p_kept_seconds, v_first);
    end if;
    return v_ranges;
end $$;
