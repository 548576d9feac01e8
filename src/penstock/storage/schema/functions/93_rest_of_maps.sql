-- The keys that a closed map has left, listed page by page.

-- Lists what is left by closed maps where that is at most p_keys keys in a partition: the rest may be a key that waits
-- for a person, and the others must not wait with it. However many jobs are left, one call looks at no more than p_jobs
-- and a range, and the next ones go on from there, in any order of partitions so that none waits for a deep one. A job
-- of a closed map keeps its range wherever it goes, so none is missed between two pages. Locks: rows of closed maps,
-- skipping those that are locked, so that nobody brings a dead letter back meanwhile. Returns how many lists it ended.
create or replace function @schema@.list_rest(p_jobs int, p_keys int) returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_queues    int[];
    v_epochs    int[];
    v_partition record;
    v_rest      @schema@.map_rest;
    v_rows      int;
    v_jobs      int;
    v_is_last   boolean;
    v_may_read  int := p_jobs;
    v_ended     int[] := '{}';
begin
    select array_agg(queue_id), array_agg(epoch) into v_queues, v_epochs
      from (select m.queue_id, m.epoch
              from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
             where m.state = 'replaced' and h.state = 'closed'
             order by m.queue_id, m.epoch for update of m skip locked) as m;
    for v_partition in
        select p.id, g.queue_id, g.epoch
          from unnest(v_queues, v_epochs) as g(queue_id, epoch) join @schema@.partition as p on p.queue_id = g.queue_id
         where @schema@.has_open_jobs(p.id, g.epoch) order by random()
    loop
        exit when v_may_read <= 0;
        insert into @schema@.map_rest (queue_id, epoch, partition_id) values (v_partition.queue_id, v_partition.epoch, v_partition.id)
            on conflict do nothing;
        v_rest := (select r from @schema@.map_rest as r
                    where r.queue_id = v_partition.queue_id and r.epoch = v_partition.epoch and r.partition_id = v_partition.id);
        -- A range may be in so many parts: one more, and the first is whole.
        v_rows := greatest(v_may_read, 1024) + 1;
        with next_rows as materialized (
            select l.range, l.low, l.high, l.members from (
                select range, low, high, members from @schema@.ready where partition_id = v_partition.id and epoch = v_partition.epoch
                union all
                select range, low, high, members from @schema@.lease where partition_id = v_partition.id and epoch = v_partition.epoch
                union all
                select range, low, high, members from @schema@.scheduled
                 where partition_id = v_partition.id and epoch = v_partition.epoch and pos is not null) as l
             where range > v_rest.through order by range limit v_rows
        ), page as materialized (
            select l.range, l.low, l.high, l.members from (
                select range, low, high, members, sum(@schema@.members_count(low, high, members))
                          over (order by range groups between unbounded preceding and 1 preceding) as jobs_before
                  from next_rows
                 where (select count(*) from next_rows) < v_rows or range < (select max(range) from next_rows)) as l
             where coalesce(jobs_before, 0) < v_may_read
        ), job_found as materialized (
            select j.key from page as l
             cross join lateral unnest(@schema@.positions(l.low, l.high, l.members)) as m
             cross join lateral (select key from @schema@.job_stored where id = l.range * 1024 + m limit 1) as j
        )
        select (select count(*) from job_found), (select count(*) from page) = (select count(*) from next_rows),
               array(select unnest(v_rest.found) union select key from job_found where key is not null),
               (select max(range) from page)
          into v_jobs, v_is_last, v_rest.found, v_rest.through;
        v_may_read := v_may_read - v_jobs;
        if cardinality(v_rest.found) > p_keys then
            v_rest.found := '{}';
            v_rest.through := 0;
        elsif v_is_last then
            v_rest.keys := v_rest.found;
            v_rest.found := '{}';
            v_rest.through := 0;
            v_ended := v_ended || v_partition.queue_id;
        end if;
        update @schema@.map_rest set keys = v_rest.keys, found = v_rest.found, through = v_rest.through
         where queue_id = v_partition.queue_id and epoch = v_partition.epoch and partition_id = v_partition.id;
    end loop;
    perform @schema@.wake(q) from (select distinct unnest(v_ended)) as e(q);
    return cardinality(v_ended);
end $$;
