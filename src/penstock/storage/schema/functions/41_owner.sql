-- Owner: where a queue has rules about keys, each partition is owned by one worker at a time, which decides in memory
-- what starts next. It only reads ahead; a job gets its lease when it starts. Whoever is not the owner any more is told
-- so before it has taken anything: the row of the partition is locked first and looked at by the next statement.

-- Brings a worker to its share of the partitions of the queues it serves: takes what nobody alive owns, as long as it
-- has less than its share, and says which of its own are more than that. The shares differ by one at most; who has the
-- one more depends on the queue, so that many small queues are spread too. Partitions that a resize removed are
-- shared out by themselves: most of them are empty. Only who knows the most tasks of the queue has a share: while a new
-- version of a program is rolled out, a key must not wait for a task that its owner does not know and another does. Remote
-- workers have none: their servers choose for them.
create or replace function @schema@.share_partitions(p_worker bigint)
returns table (partition_id int, queue_id int, owner_epoch bigint, is_surplus boolean, permits int, tokens int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_shares json;
begin
    with knowing as (
        select t.queue_id, t.worker_id, count(*) = max(count(*)) over (partition by t.queue_id) as is_able
          from @schema@.worker_task as t join @schema@.queue as q on q.id = t.queue_id and q.is_owned
         where not exists (select from @schema@.remote_worker as r where r.worker_id = t.worker_id)
         group by t.queue_id, t.worker_id
    ), crew as (
        select k.*, count(*) filter (where k.is_able) over (partition by k.queue_id) as size,
               row_number() over (partition by k.queue_id, k.is_able order by k.worker_id) - 1 as rank
          from knowing as k
    ), owned as (
        select p.queue_id, p.state = 'current' as is_current, count(*) as n,
               count(*) filter (where p.owner_id = p_worker) as mine
          from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
         where q.is_owned and p.shard = @schema@.here() and not @schema@.is_still(p.id) group by 1, 2
    )
    select json_agg(json_build_object('queue', h.queue_id, 'is_current', h.is_current, 'mine', h.mine,
               'share', case when c.is_able
                             then h.n / c.size + ((c.rank + h.queue_id) % c.size < h.n % c.size)::int else 0 end))
      into v_shares
      from crew as c join owned as h on h.queue_id = c.queue_id where c.worker_id = p_worker;

    with share as (
        select s.* from json_to_recordset(v_shares) as s(queue int, is_current boolean, mine int, share int)
    ), free as (
        select p.id, s.share - s.mine as wanted,
               row_number() over (partition by p.queue_id, s.is_current order by p.number) as rank
          from @schema@.partition as p join share as s on s.queue = p.queue_id and s.is_current = (p.state = 'current')
         where p.shard = @schema@.here() and not @schema@.is_still(p.id)
           and (p.owner_id is null or not exists (select from @schema@.worker as w where w.id = p.owner_id))
    ), chosen as (
        select p.id from @schema@.partition as p
         where p.id in (select id from free where rank <= wanted) and p.state <> 'shut'
           and (p.owner_id is null or not exists (select from @schema@.worker as w where w.id = p.owner_id))
         order by p.id for update skip locked
    )
    update @schema@.partition as p set owner_id = p_worker, owner_epoch = p.owner_epoch + 1
      from chosen as c where p.id = c.id;

    return query
    select p.id, p.queue_id, p.owner_epoch,
           row_number() over (partition by p.queue_id, s.is_current order by p.number) > s.share,
           case when q.total_limit is not null then p.permits end,
           case when q.total_rate is not null then @schema@.total_tokens(p.id) end
      from @schema@.partition as p
      join @schema@.queue as q on q.id = p.queue_id
      join json_to_recordset(v_shares) as s(queue int, is_current boolean, share int)
        on s.queue = p.queue_id and s.is_current = (p.state = 'current')
     where p.owner_id = p_worker and not @schema@.is_still(p.id)
     order by p.id;
end $$;

-- Gives partitions up, for others to take at once. What runs keeps its lease: the next owner waits for it key by key.
create or replace function @schema@.give_up_partitions(p_worker bigint, p_partitions int[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.partition where id = any (p_partitions) order by id for update;
    update @schema@.partition set owner_id = null where id = any (p_partitions) and owner_id = p_worker;
    perform @schema@.wake(q.queue_id)
       from (select distinct queue_id from @schema@.partition where id = any (p_partitions)) as q;
end $$;

-- Tells this run of the server and these tables from every other: a promoted standby, a restored backup, a dump that was
-- read into the same server. There numbers of transactions may have gone back, so that a snapshot taken elsewhere is void.
create or replace function @schema@.this_server() returns text
language sql stable
begin atomic
    select format('%s.%s.%s', (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, d.oid, '@schema@.lease'::regclass::oid)
      from pg_database as d where d.datname = current_database();
end;

-- The partitions, of whichever owner, in which rows were written since a snapshot. An owner of very many looks only at
-- these. What a restored dump brought along bears numbers that may lie ahead: it is not new. Index: ready_news.
create or replace function @schema@.news_since(p_before pg_snapshot) returns int[]
language plpgsql stable set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        select partition_id from @schema@.ready
         where changed >= pg_snapshot_xmax(p_before) and changed < pg_snapshot_xmax(pg_current_snapshot())
        union
        select partition_id from @schema@.ready where changed = any (array(select pg_snapshot_xip(p_before))));
end $$;

-- Which of these partitions a worker owns, in these owner epochs, and goes on owning until this transaction ends; without
-- those of a queue that is paused, and those that have not as many permits as jobs are to start there (p_counts), where the
-- queue has a total_limit, or tokens, where it has a total_rate: these are spent. None, if it looked at them on another server.
create or replace function @schema@.owned_partitions(
    p_worker bigint, p_server text, p_partitions int[], p_owner_epochs bigint[], p_counts int[] default null) returns int[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_server is distinct from @schema@.this_server() then
        return '{}';
    end if;
    -- Who spends tokens writes by the partition. Two that have locked it for share would wait for each other then.
    if p_counts is not null and exists (select from @schema@.partition as p join @schema@.queue as q on q.id = p.queue_id
                                         where p.id = any (p_partitions) and q.total_rate is not null) then
        perform from @schema@.partition where id = any (p_partitions) order by id for no key update;
    else
        perform from @schema@.partition where id = any (p_partitions) order by id for share;
    end if;
    return array(select p.id from unnest(p_partitions, p_owner_epochs, p_counts) as g(id, owner_epoch, n)
                   join @schema@.partition as p on p.id = g.id and p.owner_epoch = g.owner_epoch and p.owner_id = p_worker
                   join @schema@.queue as q on q.id = p.queue_id and not q.is_paused
                  where exists (select from @schema@.worker where id = p_worker)
                    and case when g.n is null then true
                             when q.total_limit is not null and g.n > p.permits - @schema@.running_in(p.id) then false
                             when q.total_rate is not null then @schema@.spend_total_tokens(p.id, g.n)
                             else true end);
end $$;

-- Gives a holder leases of the jobs that an owner chose, mostly the same worker; an element a range and its member bitmap,
-- whether no slot is free for it yet, and the batch that it is of, if any.
-- What is not ready any more (cancelled, say) is left out, and so is what lies in partitions that are not the owner's any
-- more; a holder that was declared dead gets nothing. A partition that lacks permits or tokens for what was chosen there (p_counts) gives
-- nothing, and a row without a number says so: the owner learns how many it has and chooses again. Rows are locked by one statement and read by the next, as in
-- @schema@.take. Locks: rows of partitions for share (with a total_rate: against others who start there), then those of
-- `idle_partition`, by id, then ready rows by range.
create or replace function @schema@.lease_chosen(
    p_owner bigint, p_holder bigint, p_token bigint, p_server text, p_partitions int[], p_owner_epochs bigint[],
    p_counts int[], p_ranges bigint[], p_members bit(1024)[], p_aheads boolean[], p_batches bigint[] default null)
returns setof @schema@.claimed
language plpgsql set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_none constant bit(1024) := repeat('0', 1024)::bit(1024);
    v_owned int[];
begin
    -- First, for what it does not get would be spent.
    if p_holder <> p_owner and not exists (select from @schema@.worker where id = p_holder) then
        return;
    end if;
    v_owned := @schema@.owned_partitions(p_owner, p_server, p_partitions, p_owner_epochs, p_counts);
    if cardinality(v_owned) < cardinality(p_partitions) then
        return query
        select null::bigint, id, null::smallint, null::bigint, null::bigint, null::smallint, null::smallint, null::bit(1024),
               null::smallint, null::smallint, null::boolean, null::timestamptz, null::text, null::bigint
          from unnest(@schema@.owned_partitions(p_owner, p_server, p_partitions, p_owner_epochs)) as id where id <> all (v_owned);
    end if;
    if v_owned = '{}' then
        return;
    end if;
    delete from @schema@.idle_partition
     where partition_id = any (array(select partition_id from @schema@.idle_partition where partition_id = any (v_owned)
                                      order by partition_id for update));
    perform from @schema@.ready where range = any (p_ranges) and partition_id = any (v_owned) order by range, low for update;
    return query
    with given as (
        select g.* from unnest(p_ranges, p_members, p_aheads, p_batches) as g(range, chosen, is_ahead, batch)
    ), met as materialized (
        select r.tid, r.partition_id, r.priority, r.pos, r.range, r.low, r.high, r.members, r.attempt, r.rescues, r.ready_at,
               r.epoch, r.task, g.is_ahead, g.batch, coalesce(r.members, @schema@.span(r.low, r.high)) as bitmap,
               coalesce(r.members, @schema@.span(r.low, r.high)) & g.chosen as taken
          from given as g
         cross join lateral (
               select ctid as tid, partition_id, priority, pos, range, low, high, members, attempt, rescues, ready_at, epoch, task
                 from @schema@.ready
                where range = g.range and partition_id = any (v_owned) offset 0) as r
    ), cut as (
        select tid, (array_agg(bitmap))[1] & ~bit_or(taken) as rest from met where taken <> v_none group by tid
    ), gone as (
        delete from @schema@.ready where ctid = any (array(select tid from cut where rest = v_none))
    ), kept as (
        update @schema@.ready as r set members = c.rest from cut as c
         where r.ctid = c.tid and r.ctid = any (array(select tid from cut where rest <> v_none))
    )
    insert into @schema@.lease (token, worker_id, partition_id, priority, pos, range, low, high, members,
                                attempt, rescues, is_ahead, ready_at, epoch, task, batch)
    select p_token, p_holder, partition_id, priority, pos, range, low, high, case when taken <> bitmap or members is not null then taken end,
           attempt, rescues, is_ahead, ready_at, epoch, task, batch
      from met where taken <> v_none order by pos, range, low
    returning id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at, task, batch;
end $$;

-- Has the owners of these partitions read them anew before they start anything more: jobs of them left the order, and
-- may come back elsewhere in it, where an owner that has read the old ones would not look. What it owns stays its own,
-- under the next owner epoch. To be called before any ready row is locked. Locks: the partitions' rows, by id.
create or replace function @schema@.read_anew(p_partitions int[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.partition where id = any (p_partitions) order by id for no key update;
    update @schema@.partition set owner_epoch = owner_epoch + 1 where id = any (p_partitions);
end $$;
