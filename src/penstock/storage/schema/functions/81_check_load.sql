-- What a load is refused for.

create or replace function @schema@.refuse_moved(p_queue @schema@.queue) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'PS003', message = format(
        'keys of queue %s belong to other shards by now than when its rows were staged', quote_literal(p_queue.name));
end $$;

create or replace function @schema@.refuse_deleted(p_is_deleted boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_is_deleted then
        raise exception using errcode = 'PS003', message = 'its queue was deleted since its rows were staged';
    end if;
end $$;

-- Locks the map of a load's queue, shared, where there may be another: nobody closes it before this transaction ends. The
-- queue's row is read by the next statement, which sees the map that was locked.
create or replace function @schema@.lock_map_of_load(p_queue text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.lock_newest_map(q.id) from @schema@.queue as q
      where q.name = p_queue
        and (q.is_owned or exists (select from @schema@.shard where number <> @schema@.here()));
end $$;

-- A name belongs to one load, or to the stream of one checkpoint.
create or replace function @schema@.check_load(p_load @schema@.load, p_queue @schema@.queue, p_is_stream boolean, p_origin text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_load.queue_id <> p_queue.id or p_load.is_stream <> p_is_stream then
        raise exception using errcode = '22023', message = format(
            'InvalidInput: load: %s names another load, %s queue %s: choose another name', quote_literal(p_load.name),
            case when p_load.is_stream then 'a stream into' else 'into' end,
            (select quote_literal(q.name) from @schema@.queue as q where q.id = p_load.queue_id));
    end if;
    if p_is_stream and p_load.origin <> p_origin then
        raise exception using errcode = '22023', message = format(
            'InvalidInput: load: %s belongs to a stream with another checkpoint, whose batches count from 0 too: '
            'go on from that checkpoint, or choose another name', quote_literal(p_load.name));
    end if;
end $$;

-- Refuses ranges that would make a partition longer than its queue allows.
create or replace function @schema@.check_length(p_queue @schema@.queue, p_ranges @schema@.range_to_publish[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_queue.max_length is not null and exists (
        select from (select partition_id, sum(@schema@.members_count(0::smallint, size, members)) as n
                       from unnest(p_ranges) as p where run_at is null or run_at <= now() group by partition_id) as g
         where @schema@.waiting_in(g.partition_id) + g.n > p_queue.max_length) then
        raise exception using errcode = '53400', message = format(
            'QueueFull: queue ''%s'' is full: max_length %s', p_queue.name, p_queue.max_length);
    end if;
end $$;

-- Refuses ranges that are not all there, whose queue was deleted since they were staged, whose idempotency keys are looked for
-- elsewhere, or that nobody would serve.
create or replace function @schema@.check_ranges(p_queue @schema@.queue, p_ranges @schema@.range_to_publish[], p_count bigint, p_homes smallint[])
returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(p_ranges) <> coalesce(p_count, 0) then
        raise exception using errcode = 'PS002', message = 'part of what was staged is gone';
    end if;
    perform @schema@.refuse_deleted(exists (
        select from unnest(p_ranges) as t join @schema@.partition as p on p.id = t.partition_id where p.queue_id <> p_queue.id));
    if exists (select from unnest(p_ranges) as p where p.has_idempotency_keys)
       and exists (select from @schema@.queue_map where queue_id = p_queue.id and not is_carried) then
        raise exception using errcode = '55P03', message = format(
            'the idempotency keys of queue %s are being carried to other shards', quote_literal(p_queue.name));
    end if;
    if p_queue.homes <> p_homes and exists (select from unnest(p_ranges) as p where p.has_idempotency_keys)
       or exists (select from @schema@.shard where number = @schema@.here() and state <> 'active')
          and exists (select from unnest(p_ranges) as t join @schema@.partition as p on p.id = t.partition_id where p.state <> 'current') then
        perform @schema@.refuse_moved(p_queue);
    end if;
end $$;
