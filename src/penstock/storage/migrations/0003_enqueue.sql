-- breaking: no
-- Enqueue: jobs are written once, then one row a range makes them visible, at commit, with the caller's
-- transaction. No row is locked that another producer wants.

-- Wakes the workers that sleep on a queue; free where none does.
create function penstock.wake(p_queue int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from penstock.sleeper where queue_id = p_queue) then
        perform pg_notify('penstock_' || p_queue, '');
    end if;
end $$;

-- Holds a map of keys to partitions for this transaction: false where the queue has another by now, and then nothing
-- may be written by this one. A resize sets the new map first and calls the old one closed when nobody holds it, so
-- the lock comes before the look, which is a statement of its own. Above READ COMMITTED the look would see the
-- past: there the map's row is locked against all changes, and the caller is told to begin again (40001) where it changed
-- since. False also where the map is not open yet. Never waits for a resize; shared with all other producers. A row's lock
-- and not an advisory one: that could be taken by anybody who may connect, and would hold up every producer.
create function penstock.lock_map(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch   int;
    v_is_open boolean;
begin
    perform from penstock.queue_map where queue_id = p_queue and epoch = p_epoch for key share;
    select epoch, is_open into v_epoch, v_is_open from penstock.queue where id = p_queue;
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        if p_epoch > v_epoch then
            raise exception using errcode = '40001',
                message = format('queue %s was resized since this transaction began: begin it again', p_queue);
        elsif p_epoch = v_epoch then
            perform from penstock.queue_map where queue_id = p_queue and epoch = p_epoch for share;
        end if;
    end if;
    return p_epoch = v_epoch and v_is_open;
end $$;

-- Holds the map that a queue has now; its epoch. Waits a moment for one that is not open yet.
create function penstock.hold_map(p_queue int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch   int;
    v_is_open boolean;
begin
    for v_try in 1..250 loop
        select epoch, is_open into v_epoch, v_is_open from penstock.queue where id = p_queue;
        if v_epoch is null or penstock.lock_map(p_queue, v_epoch) then
            return v_epoch;
        end if;
        if not v_is_open then
            perform pg_sleep(0.02);
        end if;
    end loop;
    raise exception using errcode = '55P03',
        message = format('queue %s gets another map of its keys, and a shard does not answer: try again', p_queue);
end $$;

-- The same as lock_map for several queues; the arrays are parallel.
create function penstock.lock_maps(p_queues int[], p_epochs int[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    for i in 1..cardinality(p_queues) loop
        if not penstock.lock_map(p_queues[i], p_epochs[i]) then
            return false;
        end if;
    end loop;
    return true;
end $$;

-- Makes written ranges visible: ready now, or scheduled where run_at lies ahead; one tally row a partition.
-- The arrays are parallel, an element a range; p_epochs: the map each was routed by, on queues with an owner.
create function penstock.open_ranges(
    p_queues int[], p_partitions int[], p_priorities smallint[], p_tasks text[], p_run_ats timestamptz[],
    p_ranges bigint[], p_sizes smallint[], p_members bit(1024)[], p_epochs int[] default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with given as (
        select g.*, g.run_at is not null and g.run_at > now() as is_later
          from unnest(p_partitions, p_priorities, p_tasks, p_run_ats, p_ranges, p_sizes, p_members, p_epochs)
               as g(partition_id, priority, task, run_at, range, size, members, epoch)
    ), at_once as (
        insert into penstock.ready (partition_id, priority, pos, range, low, high, members, task, epoch, changed)
        select partition_id, priority, range, range, 0, size, members, task, epoch,
               case when epoch is not null then pg_current_xact_id() end
          from given where not is_later
    ), later as (
        insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, members, task, epoch)
        select run_at, partition_id, priority, range, 0, size, members, task, epoch from given where is_later
    ), counted as (
        select partition_id, is_later, penstock.members_count(0::smallint, size, members) as n from given
    )
    insert into penstock.tally (partition_id, enqueued, opened, scheduled)
    select partition_id, sum(n), coalesce(sum(n) filter (where not is_later), 0), coalesce(sum(n) filter (where is_later), 0)
      from counted group by partition_id;
    perform penstock.wake(queue_id) from (select distinct unnest(p_queues)) as q(queue_id);
end $$;

-- Writes one job that may run now. Statement by statement: a single statement of three writes takes longer to set up.
create function penstock.enqueue_one(
    p_queue int, p_partition int, p_priority smallint, p_task text, p_key bytea, p_args json, p_attributes jsonb)
returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint := nextval('penstock.range_number');
begin
    if (v_range >> 10) % 64 = 0 then
        perform penstock.note_shortage(v_range);
    end if;
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (v_range * 1024, now(), p_partition, p_priority, p_task, p_key, p_args, p_attributes);
    insert into penstock.ready (partition_id, priority, pos, range, low, high, task)
    values (p_partition, p_priority, v_range, v_range, 0, 1, p_task);
    insert into penstock.tally (partition_id, enqueued, opened) values (p_partition, 1, 1);
    if exists (select from penstock.sleeper where queue_id = p_queue) then
        perform pg_notify('penstock_' || p_queue, '');
    end if;
    return v_range * 1024;
end $$;

-- The same on a queue with an owner; null, and nothing written, where the queue has another map by now.
create function penstock.enqueue_one_if_mapped(
    p_queue int, p_epoch int, p_partition int, p_priority smallint, p_task text, p_key bytea, p_args json,
    p_attributes jsonb) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint;
begin
    if not penstock.lock_map(p_queue, p_epoch) then
        return null;
    end if;
    v_range := penstock.draw_range();
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (v_range * 1024, now(), p_partition, p_priority, p_task, p_key, p_args, p_attributes);
    insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)
    values (p_partition, p_priority, v_range, v_range, 0, 1, '', p_epoch, pg_current_xact_id());
    insert into penstock.tally (partition_id, enqueued, opened) values (p_partition, 1, 1);
    perform penstock.wake(p_queue);
    return v_range * 1024;
end $$;

-- Writes one range of a few jobs of any tasks on a queue with an owner; the first id, or null as above. p_args is a
-- JSON array of the jobs' arguments, taken apart verbatim.
create function penstock.enqueue_few_if_mapped(
    p_queue int, p_epoch int, p_partition int, p_priority smallint, p_run_at timestamptz, p_tasks text[],
    p_keys bytea[], p_args json, p_attributes jsonb) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint;
begin
    if not penstock.lock_map(p_queue, p_epoch) then
        return null;
    end if;
    v_range := penstock.draw_range();
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    select v_range * 1024 + a.n - 1, now(), p_partition, p_priority, p_tasks[a.n], p_keys[a.n], a.value,
           nullif(p_attributes -> (a.n - 1)::int, 'null')
      from json_array_elements(p_args) with ordinality as a(value, n);
    perform penstock.open_ranges(array[p_queue], array[p_partition], array[p_priority], array[''], array[p_run_at],
        array[v_range], array[cardinality(p_tasks)::smallint], array[null::bit(1024)], array[p_epoch]);
    return v_range * 1024;
end $$;

-- Writes the receipt of a call whose jobs are written in this transaction; their first id. Of a call that was not written
-- (null) there is none. Refused (23505) where the call was looked for before it came.
create function penstock.note_written(p_token bigint, p_seconds double precision, p_first_id bigint) returns bigint
language plpgsql strict set search_path = pg_catalog, pg_temp as $$
begin
    insert into penstock.receipt (token, first_id, kept_until)
    values (p_token, p_first_id, now() + make_interval(secs => p_seconds));
    return p_first_id;
end $$;

-- The first id of the call that bears this token; null: it was not written, and never will be. Waits a moment for one
-- that is just being written (55P03).
create function penstock.find_or_void_receipt(p_token bigint, p_seconds double precision) returns bigint
language plpgsql set lock_timeout = '1s' set search_path = pg_catalog, pg_temp as $$
begin
    insert into penstock.receipt (token, kept_until) values (p_token, now() + make_interval(secs => p_seconds))
    on conflict do nothing;
    return (select first_id from penstock.receipt where token = p_token);
end $$;

-- Whether a job is on this shard: waiting, running, or ended and not forgotten.
create function penstock.is_here(p_job bigint) returns boolean
language sql stable
begin atomic
    select exists (
        select from penstock.finished where range = p_job / 1024 and (p_job % 1024)::smallint = any (positions)
        union all
        select from penstock.dead where job_id = p_job
        union all
        select from penstock.lease
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.ready
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.scheduled
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.blocked where job_id = p_job);
end;

-- Whether a job that was written here is anywhere: waiting, running, ended and not forgotten, or on another shard by now.
-- Who asks holds `finished` until the transaction ends, so that no slice leaves it meanwhile.
create function penstock.has_place(p_job bigint) returns boolean
language sql stable
begin atomic
    select penstock.is_here(p_job) or exists (
        select from penstock.outbox where job_id = p_job union all select from penstock.forward where job_id = p_job);
end;

-- Whether a job may be waited for: it is somewhere here, or of another shard, which only a client can ask. One that is
-- gone there did not succeed.
create function penstock.can_be_parent(p_job bigint) returns boolean
language sql stable
begin atomic
    select case when penstock.shard_of(p_job) = penstock.here() then penstock.has_place(p_job)
                else exists (select from penstock.shard where number = penstock.shard_of(p_job)) end;
end;

-- Writes children: always blocked at first; whether their parents have ended is decided in a later
-- transaction (deciding here would be write skew: the child could wait for ever).
create function penstock.block_jobs(
    p_ids bigint[], p_partitions int[], p_priorities smallint[], p_tasks text[], p_run_ats timestamptz[],
    p_runs_on_failure boolean[], p_parents json[]) returns void
language sql
begin atomic
    with given as (
        select g.*, array(select value::bigint from json_array_elements_text(g.parents_json)) as parents
          from unnest(p_ids, p_partitions, p_priorities, p_tasks, p_run_ats, p_runs_on_failure, p_parents)
               as g(id, partition_id, priority, task, run_at, runs_on_failure, parents_json)
    ), children as (
        insert into penstock.blocked (job_id, partition_id, priority, task, run_at, runs_on_failure, parents)
        select id, partition_id, priority, task, run_at, runs_on_failure, parents from given
    ), edges as (
        insert into penstock.dependency (parent_id, child_id, is_elsewhere)
        select distinct parent, id, penstock.shard_of(parent) <> penstock.here() from given, unnest(parents) as parent
    )
    insert into penstock.tally (partition_id, enqueued, blocked)
    select partition_id, count(*), count(*) from given group by partition_id;
end;

-- The key hash of docs/reference/key-hash: equal in Python, SQL and Spark.
create function penstock.h64(domain bytea, key bytea) returns bigint
language sql immutable strict parallel safe
return ('x' || encode(substr(sha256(domain || '\x00'::bytea || key), 1, 8), 'hex'))::bit(64)::bigint;

create function penstock.partition_of(key bytea, partitions int) returns int
language sql immutable strict parallel safe
return ((penstock.h64('penstock/partition/v1'::bytea, key) & 9223372036854775807) % partitions)::int;

-- The partition of a job by a map: its key's. Without a key its own, or where the map has not got that any more, another
-- one of this shard; where there is none, its own still, which is served until it is empty, unless it came from elsewhere.
create function penstock.place_by(p_ids int[], p_key bytea, p_own int) returns int
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    v_here int[];
begin
    if p_key is not null then
        return p_ids[1 + penstock.partition_of(p_key, cardinality(p_ids))];
    elsif p_own = any (p_ids) then
        return p_own;
    end if;
    select array_agg(id order by number) into v_here
      from penstock.partition where id = any (p_ids) and shard = penstock.here();
    if v_here is null then
        v_here := case when exists (select from penstock.partition where id = p_own and shard = penstock.here())
                       then array[p_own] else p_ids end;
    end if;
    return v_here[1 + (select number from penstock.partition where id = p_own) % cardinality(v_here)];
end $$;

-- The shard on which an idempotency key is remembered, of those that its queue's keys are spread over.
create function penstock.home_of(idempotency_key text, homes smallint[]) returns smallint
language sql stable strict parallel safe
begin atomic
    select homes[1 + ((penstock.h64('penstock/idempotency/v1'::bytea, convert_to(idempotency_key, 'UTF8'))
                       & 9223372036854775807) % 1024 % cardinality(homes))::int];
end;

-- The partition of a job by a queue's map: its key's, or of those on this shard the one with the fewest jobs: open ones where
-- it is ready, else also those to come. With an idempotency key it is one of the key's home, unless the key is only unique
-- within the ordering key. What lives on another shard is refused: what is written there cannot be part of this transaction.
create function penstock.place(p_queue penstock.queue, p_key bytea, p_once text, p_is_ready boolean) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_here     smallint := penstock.here();
    v_is_homed boolean := p_once is not null and (p_key is null or not p_queue.is_owned);
    v_home     smallint;
    v_ids      int[];
    v_place    penstock.partition;
begin
    if p_once is not null and exists (select from penstock.queue_map where queue_id = p_queue.id and not is_carried) then
        perform penstock.refuse('idempotency_key',
            'keys of the queue are on their way to other shards: try again in a moment, or enqueue with a client');
    end if;
    if v_is_homed then
        v_home := penstock.home_of(p_once, p_queue.homes);
        if v_home <> v_here then
            perform penstock.refuse('idempotency_key', format(
                'its home is shard %s (%s), and this is shard %s: enqueue there, or with a client',
                v_home, (select address from penstock.shard where number = v_home), v_here));
        end if;
    end if;
    if p_queue.partitions = 1 then
        select * into v_place from penstock.partition where queue_id = p_queue.id and is_current;
    elsif p_key is null then
        select p.* into v_place from penstock.partition as p left join penstock.depth as d on d.partition_id = p.id
         where p.queue_id = p_queue.id and p.is_current and p.shard = v_here
         order by coalesce(case when p_is_ready then d.opened else penstock.expected_in(d) end, 0), p.number limit 1;
        if v_place.id is null then
            select * into v_place from penstock.partition where queue_id = p_queue.id and is_current order by number limit 1;
        end if;
    elsif v_is_homed then
        v_ids := array(select id from penstock.partition
                        where queue_id = p_queue.id and is_current and shard = v_here order by number);
        select * into v_place from penstock.partition where id = v_ids[1 + penstock.partition_of(p_key, cardinality(v_ids))];
    else
        select p.* into v_place from penstock.queue_map as m
          join penstock.partition as p on p.id = m.partition_ids[1 + penstock.partition_of(p_key, m.partitions)]
         where m.queue_id = p_queue.id and m.epoch = p_queue.epoch;
    end if;
    if v_place.shard <> v_here then
        perform penstock.refuse(case when p_key is null then 'queue' else 'key' end, format(
            'partition %s of the queue lives on shard %s (%s), and this is shard %s: enqueue there, or with a client',
            v_place.name, v_place.shard, (select address from penstock.shard where number = v_place.shard), v_here));
    end if;
    return v_place.id;
end $$;

-- An idempotency key as it is stored on queues with an owner, where it is unique for each ordering key.
create function penstock.once_per_key(key bytea, idempotency_key text) returns text
language sql immutable parallel safe
return coalesce(encode(key, 'hex'), '') || ':' || idempotency_key;

-- Refuses bad input with one kind of error, which names the field.
create function penstock.refuse(field text, problem text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = '22023', message = format('InvalidJob: %s: %s', field, problem);
end $$;

-- enqueue: for any language, inside any transaction. Returns the job's id.
create function penstock.enqueue(
    queue text, task text, args jsonb default '{}', key text default null, key_bytes bytea default null,
    priority int default 5, run_at timestamptz default null, delay double precision default null,
    after bigint[] default null, on_parent_failure text default 'cancel', idempotency_key text default null,
    tenant text default null, owner text default null, tags text[] default null) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_queue      penstock.queue;
    v_key        bytea := coalesce(enqueue.key_bytes, convert_to(enqueue.key, 'UTF8'));
    v_run_at     timestamptz := enqueue.run_at;
    v_partition  int;
    v_id         bigint;
    v_once       text := enqueue.idempotency_key;
    v_known      bigint;
    v_attributes jsonb;
    v_field      text;
    v_value      text;
begin
    select * into v_queue from penstock.queue where name = enqueue.queue;
    if v_queue.id is null then
        raise exception using errcode = '42704',
            message = format('NotFound: queue %L does not exist: declare it with app.queue(...) and app.migrate()', enqueue.queue);
    end if;
    for v_field, v_value in values ('task', enqueue.task), ('tenant', enqueue.tenant), ('owner', enqueue.owner) loop
        if v_value is null and v_field <> 'task' then
            continue;
        end if;
        if v_value is null or length(v_value) not between 1 and 200 or btrim(v_value) = '' then
            perform penstock.refuse(v_field, 'must be text of 1 to 200 characters');
        end if;
    end loop;
    if enqueue.args is null or jsonb_typeof(enqueue.args) <> 'object' then
        perform penstock.refuse('args', 'must be a JSON object, e.g. jsonb_build_object(''to'', ''a@b.c'')');
    elsif octet_length(enqueue.args::text) > 262144 then
        perform penstock.refuse('args', format('%s bytes, more than the limit of 262144: store the data elsewhere and pass its address', octet_length(enqueue.args::text)));
    elsif enqueue.key is not null and enqueue.key_bytes is not null then
        perform penstock.refuse('key', 'give key or key_bytes, not both');
    elsif octet_length(v_key) > 512 then
        perform penstock.refuse('key', format('%s bytes, more than the limit of 512', octet_length(v_key)));
    elsif enqueue.priority is null or enqueue.priority not between 0 and 9 then
        perform penstock.refuse('priority', 'must be 0 (first) to 9');
    elsif enqueue.delay is not null and enqueue.run_at is not null then
        perform penstock.refuse('delay', 'give run_at or delay, not both');
    elsif not (enqueue.delay between 0 and 316224000) then
        perform penstock.refuse('delay', 'must be 0 to 316224000 seconds');
    elsif v_run_at not between '1900-01-01 00:00:00+00' and '9999-01-01 00:00:00+00' then
        perform penstock.refuse('run_at', 'must be a time in the years 1900 to 9998');
    elsif array_ndims(enqueue.after) > 1 or cardinality(enqueue.after) > 1000 then
        perform penstock.refuse('after', 'must be a plain array of at most 1000 ids');
    elsif enqueue.on_parent_failure is null or enqueue.on_parent_failure not in ('cancel', 'run') then
        perform penstock.refuse('on_parent_failure', 'must be cancel or run');
    elsif octet_length(enqueue.idempotency_key) > 512 or btrim(enqueue.idempotency_key) = '' then
        perform penstock.refuse('idempotency_key', 'must have 1 to 512 bytes and not be blank');
    elsif array_ndims(enqueue.tags) > 1 or cardinality(enqueue.tags) > 32 then
        perform penstock.refuse('tags', 'must be a plain array of at most 32 texts');
    elsif exists (select from unnest(enqueue.tags) as t where t is null or length(t) > 200 or btrim(t) = '') then
        perform penstock.refuse('tags', 'each must be text of 1 to 200 characters');
    end if;
    if enqueue.delay is not null then
        v_run_at := now() + make_interval(secs => enqueue.delay);
    end if;

    if v_queue.is_owned or v_once is not null then
        while not penstock.lock_map(v_queue.id, v_queue.epoch) loop
            perform penstock.hold_map(v_queue.id);
            select * into v_queue from penstock.queue where id = v_queue.id;
        end loop;
    end if;
    v_partition := penstock.place(v_queue, v_key, v_once,
                                  coalesce(v_run_at <= now(), true) and coalesce(cardinality(enqueue.after), 0) = 0);
    if v_queue.is_owned then
        v_once := penstock.once_per_key(v_key, v_once);
    end if;
    if v_queue.max_length is not null and penstock.waiting_in(v_partition) + 1 > v_queue.max_length then
        raise exception using errcode = '53400', message = format('QueueFull: queue ''%s'' is full: max_length %s', enqueue.queue, v_queue.max_length);
    end if;

    v_attributes := nullif(jsonb_strip_nulls(jsonb_build_object(
        'tenant', enqueue.tenant, 'owner', enqueue.owner, 'idempotency_key', enqueue.idempotency_key,
        'tags', to_jsonb(enqueue.tags), 'parents', to_jsonb(enqueue.after::text[]))), '{}');
    v_id := penstock.draw_range() * 1024;
    -- Until the key is this job's or another one has it: it may be forgotten between the conflict and the look.
    while enqueue.idempotency_key is not null loop
        insert into penstock.dedup (queue_id, idempotency_key, job_id) values (v_queue.id, v_once, v_id) on conflict do nothing;
        exit when found;
        select job_id into v_known from penstock.dedup d where d.queue_id = v_queue.id and d.idempotency_key = v_once;
        if found then
            return v_known;
        end if;
    end loop;
    insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args, attributes)
    values (v_id, now(), v_partition, enqueue.priority, enqueue.task, v_key, enqueue.args::json, v_attributes);
    if cardinality(enqueue.after) > 0 then
        select p into v_known from unnest(enqueue.after) as p
         where p is null or not penstock.can_be_parent(p) limit 1;
        if found then
            perform penstock.refuse('after', format('job %s is unknown, pruned or archived', v_known));
        end if;
        perform penstock.block_jobs(array[v_id], array[v_partition], array[enqueue.priority::smallint], array[enqueue.task],
            array[v_run_at], array[enqueue.on_parent_failure = 'run'], array[to_json(enqueue.after)]);
    else
        perform penstock.open_ranges(array[v_queue.id], array[v_partition], array[enqueue.priority::smallint],
            array[case when v_queue.is_owned then '' else enqueue.task end], array[v_run_at], array[v_id / 1024],
            array[1::smallint], array[null::bit(1024)], array[case when v_queue.is_owned then v_queue.epoch end]);
    end if;
    return v_id;
end $$;

-- Jobs that wait in a partition, ready and not under a lease: what max_length bounds.
create function penstock.waiting_in(p_partition int) returns bigint
language sql stable
begin atomic
    select coalesce((select opened from penstock.depth where partition_id = p_partition), 0)
         - coalesce((select sum(penstock.members_count(low, high, members)) from penstock.lease where partition_id = p_partition), 0);
end;
