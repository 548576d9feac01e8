-- Tasks that no worker knows are parked; what transactions appended to the figures is folded.

-- park: rows whose task no live worker knows leave the order, so that they never stand at the head; they
-- come back as soon as one does. Looks at the head of served partitions in which anything is ready only, and at so many of
-- them at most, from the one after p_after on: the last of them is told, for the next round to go on behind it; null where
-- there are no more. Where a partition has an owner, that one knows what to do: a job it has no handler for waits, and its
-- key with it.
create or replace function @schema@.park(p_after int default 0, p_most int default 500, out moved int, out last_id int)
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_some int[];
begin
    v_some := array(
        with recursive found(id, n) as (
            (select r.partition_id, 1 from @schema@.ready as r where not r.is_parked and r.partition_id > p_after
              order by r.partition_id, r.priority, r.pos limit 1)
            union all
            select (select r.partition_id from @schema@.ready as r where not r.is_parked and r.partition_id > f.id
                     order by r.partition_id, r.priority, r.pos limit 1), n + 1
              from found as f where f.id is not null and f.n < p_most
        )
        select id from found where id is not null order by id);
    last_id := case when cardinality(v_some) = p_most then v_some[p_most] end;
    with served as (
        select p.id, p.queue_id
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id and not q.is_owned
         where p.id = any (v_some) and exists (select from @schema@.worker_task as t where t.queue_id = p.queue_id)
    ), unknown as materialized (
        select r.tid from served as s cross join generate_series(0, 9) as level(priority)
         cross join lateral (
               select ctid as tid, task from @schema@.ready
                where partition_id = s.id and not is_parked and priority = level.priority
                order by pos limit 1000) as r
         where not exists (select from @schema@.worker_task as t where t.queue_id = s.queue_id and t.task = r.task)
    ), locked as materialized (
        select ctid as tid from @schema@.ready where ctid = any (array(select tid from unknown)) for update skip locked
    ), parked as (
        update @schema@.ready as r set is_parked = true from locked as l where r.ctid = l.tid returning 1
    )
    select count(*) into moved from parked;
    if not exists (select from @schema@.ready where is_parked and reason is null) then
        return;
    end if;
    with known as (
        select distinct p.id as partition_id, t.task, p.queue_id
          from @schema@.worker_task as t join @schema@.partition as p on p.queue_id = t.queue_id
    ), back as (
        update @schema@.ready as r set is_parked = false from known as k
         where r.is_parked and r.reason is null and r.partition_id = k.partition_id and r.task = k.task returning k.queue_id
    )
    select moved + count(@schema@.wake(queue_id)) into moved from (select distinct queue_id from back) as q;
end $$;

-- fold: tally rows are added into the totals. One folder at a time; the others pass.
create or replace function @schema@.fold() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    if not pg_try_advisory_xact_lock(hashtext('@schema@.fold')) then
        return 0;
    end if;
    with gone as (
        delete from @schema@.tally
        returning partition_id, opened, scheduled, blocked, dead, enqueued, completed, failed, cancelled, discarded, expired
    ), folded as (
        insert into @schema@.total as t (partition_id, opened, scheduled, blocked, dead, enqueued, completed, failed,
                                        cancelled, discarded, expired)
        select partition_id, coalesce(sum(opened), 0), coalesce(sum(scheduled), 0), coalesce(sum(blocked), 0),
               coalesce(sum(dead), 0), coalesce(sum(enqueued), 0), coalesce(sum(completed), 0), coalesce(sum(failed), 0),
               coalesce(sum(cancelled), 0), coalesce(sum(discarded), 0), coalesce(sum(expired), 0)
          from gone group by partition_id order by partition_id
        on conflict (partition_id) do update set
            opened = t.opened + excluded.opened, scheduled = t.scheduled + excluded.scheduled,
            blocked = t.blocked + excluded.blocked, dead = t.dead + excluded.dead,
            enqueued = t.enqueued + excluded.enqueued, completed = t.completed + excluded.completed,
            failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled,
            discarded = t.discarded + excluded.discarded, expired = t.expired + excluded.expired
    )
    select count(*) into v_count from gone;
    return v_count;
end $$;
