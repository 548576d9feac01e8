-- Queues are deleted.

-- Deletes a queue, in one change of the catalogue; false where it was deleted before. From the commit on it gives out nothing,
-- nobody writes by its key map, and its name and its partitions' are free: the rows stay, under names that say so. By them what
-- ended there is read, and what those write who have not heard of it yet is found and ended (@schema@.held_by_deleted): a
-- producer without a map to lock, a load that was decided, a job that comes from another shard. Rows of a deleted queue never
-- leave: that nobody will ever come with its number cannot be known. Limits go, so that nothing is allotted there.
-- An announced change of its partitions is an error (55006): it is through soon. Locks: the catalogue, the queue's ledger by its duty, the map's row, the partitions', the queue's.
create or replace function @schema@.delete_queue(p_queue int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   @schema@.queue;
    v_version bigint;
    v_name    text;
begin
    if exists (select from @schema@.queue where id = p_queue and deleted_at is not null) then
        return false;
    end if;
    v_version := @schema@.next_version();
    v_queue := (select q from @schema@.queue as q where q.id = p_queue);
    if v_queue.deleted_at is not null then
        return false;
    elsif exists (select from @schema@.queue_map where queue_id = p_queue and state = 'announced') then
        raise exception using errcode = '55006',
            message = format('another change of the partitions of queue %s is under way', quote_literal(v_queue.name));
    end if;
    v_name := left(v_queue.name, 180) || format(' (deleted %s)', p_queue);
    -- Before the partitions: who notes reports has it, and then needs them to stay.
    perform from @schema@.permit_duty where queue_id = p_queue for update;
    -- Its idempotency keys are nobody's any more, and stay where they are until they are forgotten.
    update @schema@.queue_map set is_carried = true where queue_id = p_queue and not is_carried;
    update @schema@.queue_map set state = 'replaced' where queue_id = p_queue and epoch = v_queue.epoch;
    insert into @schema@.map_here (queue_id, epoch) values (p_queue, v_queue.epoch) on conflict do nothing;
    update @schema@.partition
       set name = v_name || substr(name, length(v_queue.name) + 1),
           state = case when state = 'current' then 'left' else state end,
           left_at = case when state = 'current' then v_version else left_at end
     where queue_id = p_queue;
    update @schema@.queue
       set name = v_name, deleted_at = now(), is_paused = true, version = v_version,
           rules = rules - array['limit', 'rate', 'total_limit', 'total_rate', 'max_wait'], weights = null, limited_at = null
     where id = p_queue;
    delete from @schema@.permit_ledger where queue_id = p_queue;
    delete from @schema@.permit_duty where queue_id = p_queue;
    perform @schema@.wake(p_queue);
    return true;
end $$;

-- What deleted queues still hold on this shard, a row a partition that does: open jobs, scheduled ones, blocked ones and dead
-- letters. Where no queue was deleted nothing else is looked at. Index: the primary key of total; the tally is short.
create or replace function @schema@.held_by_deleted()
returns table (partition_id int, opened bigint, scheduled bigint, blocked bigint, dead bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_partitions int[] := array(select p.id from @schema@.queue as q join @schema@.partition as p on p.queue_id = q.id
                                 where q.deleted_at is not null);
begin
    if v_partitions <> '{}' then
        return query
        select d.partition_id, d.opened, d.scheduled, d.blocked, d.dead from @schema@.depth as d
         where d.partition_id = any (v_partitions) and (d.opened <> 0 or d.scheduled <> 0 or d.blocked <> 0 or d.dead <> 0);
    end if;
end $$;

-- Forgets what is only of use to a queue that works, of those that were deleted: cron entries, halted keys, idempotency keys. So
-- many of these at a time; returns how many rows that was, or null where no queue was deleted.
create or replace function @schema@.forget_deleted(p_limit int) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queues int[] := array(select id from @schema@.queue where deleted_at is not null);
    v_count  bigint;
begin
    if v_queues = '{}' then
        return null;
    end if;
    with crons as (
        delete from @schema@.cron where queue_id = any (v_queues) returning 1
    ), halted as (
        delete from @schema@.halted where queue_id = any (v_queues) returning 1
    ), keys as (
        delete from @schema@.dedup where ctid = any (array(
            select ctid from @schema@.dedup where queue_id = any (v_queues) limit p_limit for update skip locked))
        returning 1
    )
    select (select count(*) from crons) + (select count(*) from halted) + (select count(*) from keys) into v_count;
    return v_count;
end $$;
