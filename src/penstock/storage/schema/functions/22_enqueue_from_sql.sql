-- @schema@.enqueue, for any language.

-- The partition of a job by a queue's map: its key's, or of those on this shard the one with the fewest jobs: open ones where
-- it is ready, else also those to come. With an idempotency key it is one of the key's home, unless the key is only unique
-- within the ordering key. What lives on another shard is refused: what is written there cannot be part of this transaction.
-- p_field: what the caller gave, from which the idempotency key comes.
create or replace function @schema@.choose_partition(
    p_queue @schema@.queue, p_key bytea, p_idempotency_key text, p_is_ready boolean, p_field text default 'idempotency_key') returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_here     smallint := @schema@.here();
    v_is_homed boolean := p_idempotency_key is not null and (p_key is null or not p_queue.is_owned);
    v_home     smallint;
    v_ids      int[];
    v_chosen   @schema@.partition;
begin
    if p_idempotency_key is not null and exists (select from @schema@.queue_map where queue_id = p_queue.id and not is_carried) then
        perform @schema@.refuse(p_field,
            'keys of the queue are on their way to other shards: try again in a moment, or enqueue with a client');
    end if;
    if v_is_homed then
        v_home := @schema@.home_of(p_idempotency_key, p_queue.homes);
        if v_home <> v_here then
            perform @schema@.refuse(p_field, format(
                'its home is shard %s (%s), and this is shard %s: enqueue there, or with a client',
                v_home, (select address from @schema@.shard where number = v_home), v_here));
        end if;
    end if;
    if p_queue.partitions = 1 then
        v_chosen := (select p from @schema@.partition as p where p.queue_id = p_queue.id and p.state = 'current' limit 1);
    elsif p_key is null then
        v_chosen := (
            select p from @schema@.partition as p left join @schema@.depth as d on d.partition_id = p.id
             where p.queue_id = p_queue.id and p.state = 'current' and p.shard = v_here
             order by coalesce(case when p_is_ready then d.opened else @schema@.expected_in(d) end, 0), p.number limit 1);
        if v_chosen.id is null then
            v_chosen := (select p from @schema@.partition as p where p.queue_id = p_queue.id and p.state = 'current' order by p.number limit 1);
        end if;
    elsif v_is_homed then
        v_ids := array(select id from @schema@.partition
                        where queue_id = p_queue.id and state = 'current' and shard = v_here order by number);
        v_chosen := (select p from @schema@.partition as p where p.id = v_ids[1 + @schema@.partition_of(p_key, cardinality(v_ids))]);
    else
        v_chosen := (
            select p from @schema@.queue_map as m
              join @schema@.partition as p on p.id = m.partition_ids[1 + @schema@.partition_of(p_key, m.partitions)]
             where m.queue_id = p_queue.id and m.epoch = p_queue.epoch);
    end if;
    if v_chosen.shard <> v_here then
        perform @schema@.refuse(case when p_key is null then 'queue' else 'key' end, format(
            'partition %s of the queue lives on shard %s (%s), and this is shard %s: enqueue there, or with a client',
            v_chosen.name, v_chosen.shard, (select address from @schema@.shard where number = v_chosen.shard), v_here));
    end if;
    return v_chosen.id;
end $$;

-- Refuses a queue that was not found by its name, or was deleted since.
create or replace function @schema@.refuse_unknown_queue(p_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = '42704',
        message = format('NotFound: queue %L does not exist: declare it with app.queue(...) and app.migrate()', p_name);
end $$;

-- What a job keeps of a W3C trace context, as penstock.model.trace_context has it; null where it is not sampled.
create or replace function @schema@.trace_attributes(p_traceparent text, p_tracestate text) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_parts text[] := regexp_match(p_traceparent, '^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?$');
    v_flags int := ('x' || v_parts[4])::bit(8)::int;
begin
    if p_traceparent is null and p_tracestate is null then
        return null;
    elsif p_tracestate !~ '^[ -~]*$' or length(p_tracestate) > 512 then
        perform @schema@.refuse('tracestate', 'must be printable ASCII text of at most 512 characters');
    elsif v_parts is null or v_parts[1] = 'ff' or (v_parts[1] = '00' and v_parts[5] is not null) then
        perform @schema@.refuse('traceparent',
            'must be a W3C trace context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01');
    elsif v_parts[2] ~ '^0*$' or v_parts[3] ~ '^0*$' then
        perform @schema@.refuse('traceparent', 'the ids of trace and span must not be all zeros');
    elsif v_flags & 1 = 0 then
        return null;
    end if;
    return jsonb_strip_nulls(jsonb_build_object(
        'traceparent', format('00-%s-%s-0%s', v_parts[2], v_parts[3], v_flags & 3), 'tracestate', nullif(p_tracestate, '')));
end $$;

-- enqueue: for any language, inside any transaction. Returns the job's id.
create or replace function @schema@.enqueue(
    queue text, task text, args jsonb default '{}', key text default null, key_bytes bytea default null,
    priority int default 5, run_at timestamptz default null, delay double precision default null,
    after bigint[] default null, on_parent_failure text default 'cancel', idempotency_key text default null,
    tenant text default null, created_by text default null, tags text[] default null,
    "unique" text default null, unique_key text default null,
    traceparent text default null, tracestate text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_queue           @schema@.queue;
    v_key             bytea := coalesce(enqueue.key_bytes, convert_to(enqueue.key, 'UTF8'));
    v_run_at          timestamptz := enqueue.run_at;
    v_partition       int;
    v_id              bigint;
    v_idempotency_key text := enqueue.idempotency_key;
    v_known           bigint;
    v_attributes      jsonb;
    v_field           text;
    v_value           text;
    v_trace           jsonb := @schema@.trace_attributes(enqueue.traceparent, enqueue.tracestate);
begin
    if enqueue.queue is null then
        perform @schema@.refuse('queue', 'must be the name of a queue, not null');
    end if;
    v_queue := (select q from @schema@.queue as q where q.name = enqueue.queue);
    if v_queue.id is null or v_queue.deleted_at is not null then
        perform @schema@.refuse_unknown_queue(enqueue.queue);
    end if;
    for v_field, v_value in values ('task', enqueue.task), ('tenant', enqueue.tenant), ('created_by', enqueue.created_by) loop
        if v_value is null and v_field <> 'task' then
            continue;
        end if;
        if v_value is null or length(v_value) not between 1 and 200 or btrim(v_value) = '' then
            perform @schema@.refuse(v_field, 'must be text of 1 to 200 characters');
        elsif v_value in ('.', '..') then
            perform @schema@.refuse(v_field, format('%L is a step in the path of a URL, never a name: give another', v_value));
        end if;
    end loop;
    if enqueue.args is null or jsonb_typeof(enqueue.args) <> 'object' then
        perform @schema@.refuse('args', 'must be a JSON object, e.g. jsonb_build_object(''to'', ''a@b.c'')');
    elsif octet_length(enqueue.args::text) > 262144 then
        perform @schema@.refuse('args', format('%s bytes, more than the limit of 262144: store the data elsewhere and pass its address', octet_length(enqueue.args::text)));
    elsif enqueue.key is not null and enqueue.key_bytes is not null then
        perform @schema@.refuse('key', 'give key or key_bytes, not both');
    elsif octet_length(v_key) > 512 then
        perform @schema@.refuse('key', format('%s bytes, more than the limit of 512: give a digest', octet_length(v_key)));
    elsif enqueue.priority is null or enqueue.priority not between 0 and 9 then
        perform @schema@.refuse('priority', 'must be 0 (first) to 9');
    elsif enqueue.delay is not null and enqueue.run_at is not null then
        perform @schema@.refuse('delay', 'give run_at or delay, not both');
    elsif not (enqueue.delay between 0 and 316224000) then
        perform @schema@.refuse('delay', 'must be 0 to 316224000 seconds');
    elsif v_run_at not between '1900-01-01 00:00:00+00' and '9999-01-01 00:00:00+00' then
        perform @schema@.refuse('run_at', 'must be a time in the years 1900 to 9998');
    elsif array_ndims(enqueue.after) > 1 or cardinality(enqueue.after) > 1000 then
        perform @schema@.refuse('after', 'must be a plain array of at most 1000 ids');
    elsif array_position(enqueue.after, null) is not null then
        perform @schema@.refuse('after', 'must hold ids, not null: give what enqueue returned');
    elsif enqueue.on_parent_failure is null or enqueue.on_parent_failure not in ('cancel', 'run', 'wait') then
        perform @schema@.refuse('on_parent_failure', 'must be cancel, run or wait');
    elsif octet_length(enqueue.idempotency_key) > 512 or btrim(enqueue.idempotency_key) = '' then
        perform @schema@.refuse('idempotency_key', 'must have 1 to 512 bytes and not be blank');
    elsif starts_with(enqueue.idempotency_key, 'penstock.') then
        perform @schema@.refuse('idempotency_key', 'what begins with ''penstock.'' is Penstock''s own; choose another beginning');
    elsif enqueue."unique" <> 'waiting' then
        perform @schema@.refuse('unique', 'must be waiting, or null');
    elsif enqueue."unique" is not null and enqueue.idempotency_key is not null then
        perform @schema@.refuse('unique', 'give unique or idempotency_key, not both');
    elsif enqueue."unique" is null and enqueue.unique_key is not null then
        perform @schema@.refuse('unique_key', 'give "unique" => ''waiting'' with it');
    elsif octet_length(enqueue.unique_key) > 512 or btrim(enqueue.unique_key) = '' then
        perform @schema@.refuse('unique_key', 'must have 1 to 512 bytes and not be blank');
    elsif array_ndims(enqueue.tags) > 1 or cardinality(enqueue.tags) > 32 then
        perform @schema@.refuse('tags', 'must be a plain array of at most 32 texts');
    elsif exists (select from unnest(enqueue.tags) as t where t is null or length(t) > 200 or btrim(t) = '') then
        perform @schema@.refuse('tags', 'each must be text of 1 to 200 characters');
    elsif enqueue.tags && array['.', '..'] then
        perform @schema@.refuse('tags', '. and .. are steps in the path of a URL, never names: give others');
    end if;
    if enqueue.delay is not null then
        v_run_at := now() + make_interval(secs => enqueue.delay);
    end if;

    if enqueue."unique" is not null then
        v_idempotency_key := @schema@.unique_text(enqueue.task, enqueue.args, enqueue.unique_key);
    end if;
    if v_queue.is_owned or v_idempotency_key is not null then
        while not @schema@.lock_map(v_queue.id, v_queue.epoch) loop
            perform @schema@.lock_newest_map(v_queue.id);
            v_queue := (select q from @schema@.queue as q where q.id = v_queue.id);
            if v_queue.deleted_at is not null then
                perform @schema@.refuse_unknown_queue(enqueue.queue);
            end if;
        end loop;
    end if;
    v_partition := @schema@.choose_partition(
        v_queue, v_key, v_idempotency_key, coalesce(v_run_at <= now(), true) and coalesce(cardinality(enqueue.after), 0) = 0,
        case when enqueue."unique" is null then 'idempotency_key' when enqueue.unique_key is null then 'unique' else 'unique_key' end);
    if v_queue.is_owned then
        v_idempotency_key := @schema@.scoped_idempotency_key(v_key, v_idempotency_key);
    end if;
    if v_queue.max_length is not null and @schema@.waiting_in(v_partition) + 1 > v_queue.max_length then
        raise exception using errcode = '53400', message = format('QueueFull: queue ''%s'' is full: max_length %s', enqueue.queue, v_queue.max_length);
    end if;

    v_attributes := nullif(jsonb_strip_nulls(jsonb_build_object(
        'tenant', enqueue.tenant, 'created_by', enqueue.created_by, 'idempotency_key', enqueue.idempotency_key,
        'tags', to_jsonb(enqueue.tags), 'parents', to_jsonb(enqueue.after::text[])))
        || coalesce(v_trace, '{}'), '{}');
    v_id := @schema@.draw_range() * 1024;
    if enqueue."unique" is not null then
        v_known := @schema@.take_unique(v_queue.id, v_idempotency_key, v_id, true);
        if v_known is not null then
            return v_known;
        end if;
    end if;
    -- Until the key is this job's or another one has it: it may be forgotten between the conflict and the look.
    while enqueue.idempotency_key is not null loop
        insert into @schema@.dedup (queue_id, idempotency_key, job_id) values (v_queue.id, v_idempotency_key, v_id) on conflict do nothing;
        exit when found;
        select job_id into v_known from @schema@.dedup d where d.queue_id = v_queue.id and d.idempotency_key = v_idempotency_key;
        if found then
            return v_known;
        end if;
    end loop;
    insert into @schema@.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (v_id, now(), v_partition, enqueue.priority, enqueue.task, v_key, enqueue.args::json,
            @schema@.with_run_at(v_attributes, case when v_run_at > now() then v_run_at end));
    if cardinality(enqueue.after) > 0 then
        select p into v_known from unnest(enqueue.after) as p
         where not @schema@.can_be_parent(p) limit 1;
        if found then
            perform @schema@.refuse('after', format('job %s is unknown, pruned or archived', v_known));
        end if;
        perform @schema@.block_jobs(array[v_id], array[v_partition], array[enqueue.priority::smallint], array[enqueue.task],
            array[v_run_at], array[enqueue.on_parent_failure], array[to_json(enqueue.after)]);
    else
        perform @schema@.make_visible(array[v_queue.id], array[v_partition], array[enqueue.priority::smallint],
            array[case when v_queue.is_owned then '' else enqueue.task end], array[v_run_at], array[v_id / 1024],
            array[1::smallint], array[null::bit(1024)], array[case when v_queue.is_owned then v_queue.epoch end]);
    end if;
    return v_id;
end $$;
