-- Figures for whoever watches in SQL. Each database tells its own partitions; over shards they are added up.

-- A row a partition that is or was in use here, without those of deleted queues. Reads what app.stats reads, and the oldest row of each priority: nothing that
-- grows with a backlog. Index: ready_in_order, ready_out_of_order, the primary key of minute.
create view @schema@.partition_stats as
    select q.name as queue, p.name as partition, p.id as partition_id, p.shard, p.state, q.is_paused,
           coalesce(d.opened, 0) - coalesce(l.jobs, 0) as waiting, coalesce(l.jobs, 0) as running,
           coalesce(d.scheduled, 0) as scheduled, coalesce(d.blocked, 0) as blocked, coalesce(d.dead, 0) as dead,
           extract(epoch from now() - oldest.ready_at)::double precision as oldest_wait_seconds,
           least(q.running_limit, case when q.total_limit is not null then p.permits end) as running_limit,
           q.max_length, (select w.name from @schema@.worker as w where w.id = p.owner_id) as owner,
           (coalesce(d.enqueued, 0) - before.enqueued) / before.seconds as in_per_second,
           (coalesce(d.completed + d.failed + d.cancelled + d.discarded + d.expired, 0) - before.ended) / before.seconds as out_per_second,
           coalesce(d.enqueued, 0) as total_enqueued, coalesce(d.completed, 0) as total_completed,
           coalesce(d.failed, 0) as total_failed, coalesce(d.cancelled, 0) as total_cancelled,
           coalesce(d.discarded, 0) as total_discarded, coalesce(d.expired, 0) as total_expired
      from @schema@.catalogue as c
      join @schema@.partition as p on p.shard = c.number
      join @schema@.queue as q on q.id = p.queue_id
      left join @schema@.depth as d on d.partition_id = p.id
      left join (select partition_id, sum(@schema@.members_count(low, high, members))::bigint as jobs
                   from @schema@.lease group by partition_id) as l on l.partition_id = p.id
     cross join lateral (
           select min(head.ready_at) as ready_at from (
               select r.ready_at from generate_series(0, 9) as level(priority)
                cross join lateral (
                      select ready_at from @schema@.ready
                       where partition_id = p.id and not is_parked and priority = level.priority order by pos limit 1) as r
               union all
               (select ready_at from @schema@.ready
                 where partition_id = p.id and (pos <> range or is_parked) order by range limit 1)) as head) as oldest
      -- The oldest note of the last minutes; one that is too young would make rates of chance.
      left join (select distinct on (partition_id) partition_id, enqueued, completed + failed + cancelled + discarded + expired as ended,
                        extract(epoch from now() - noted_at)::double precision as seconds
                   from @schema@.minute
                  where minute >= now() - interval '6 minutes' and noted_at <= now() - interval '30 seconds'
                  order by partition_id, minute) as before on before.partition_id = p.id
     where q.deleted_at is null and (p.state <> 'unused' or d.partition_id is not null);

-- A row a queue, of what of it is here; but total_limit is of the whole queue, on whichever shards.
create view @schema@.queue_stats as
    select queue, bool_or(s.is_paused) as is_paused, count(*) filter (where state = 'current') as partitions,
           sum(waiting)::bigint as waiting, sum(running)::bigint as running, sum(scheduled)::bigint as scheduled,
           sum(blocked)::bigint as blocked, sum(dead)::bigint as dead, max(oldest_wait_seconds) as oldest_wait_seconds,
           least(sum(q.running_limit) filter (where state = 'current'), q.total_limit) as running_limit,
           sum(s.max_length) filter (where state = 'current')::bigint as max_length,
           sum(in_per_second) as in_per_second, sum(out_per_second) as out_per_second,
           sum(total_enqueued)::bigint as total_enqueued, sum(total_completed)::bigint as total_completed,
           sum(total_failed)::bigint as total_failed, sum(total_cancelled)::bigint as total_cancelled,
           sum(total_discarded)::bigint as total_discarded, sum(total_expired)::bigint as total_expired,
           q.total_limit
      from @schema@.partition_stats as s join @schema@.queue as q on q.name = s.queue group by s.queue, q.id;

-- A row a partition and minute of the last day: what stood there, and what came and ended since the minute before. Counts
-- are null where none was noted before. Index: the primary key of minute, twice.
create view @schema@.stats_history as
    select m.minute, q.name as queue, p.name as partition, p.shard,
           m.waiting, m.running, m.scheduled, m.blocked, m.dead, m.oldest_wait_seconds,
           m.enqueued - b.enqueued as enqueued, m.completed - b.completed as completed, m.failed - b.failed as failed,
           m.cancelled - b.cancelled as cancelled, m.discarded - b.discarded as discarded, m.expired - b.expired as expired,
           extract(epoch from m.noted_at - b.noted_at)::double precision as seconds
      from @schema@.minute as m
      join @schema@.partition as p on p.id = m.partition_id
      join @schema@.queue as q on q.id = p.queue_id
      left join @schema@.minute as b on b.minute = m.previous and b.partition_id = m.partition_id;

-- note_minute: the figures of now are kept as those of this minute, unless somebody has done so; what is older than a day
-- goes. Histograms of waits and run times that processes appended are added up, once that minute is over for all of them.
-- Returns the seconds until the next minute. Locks: one at a time; the others pass. Index: minute_histogram_by_minute,
-- minute_histogram_appended.
create or replace function @schema@.note_minute() returns double precision
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_minute timestamptz := date_trunc('minute', now());
    v_previous timestamptz;
begin
    if pg_try_advisory_xact_lock(hashtext('@schema@.note_minute')) then
        v_previous := (select max(minute) from @schema@.minute);
        if v_previous is null or v_previous < v_minute then
            -- One that was not there before began at nothing.
            insert into @schema@.minute (minute, partition_id, noted_at)
            select v_previous, s.partition_id, (select max(noted_at) from @schema@.minute where minute = v_previous)
              from @schema@.partition_stats as s where v_previous is not null
            on conflict do nothing;
            insert into @schema@.minute (minute, partition_id, previous, waiting, running, scheduled, blocked, dead,
                                         oldest_wait_seconds, enqueued, completed, failed, cancelled, discarded, expired)
            select v_minute, partition_id, v_previous, waiting, running, scheduled, blocked, dead,
                   oldest_wait_seconds, total_enqueued, total_completed, total_failed, total_cancelled, total_discarded, total_expired
              from @schema@.partition_stats;
            delete from @schema@.minute where minute < v_minute - interval '1 day';
            with appended as (
                delete from @schema@.minute_histogram where not is_folded and minute < v_minute - interval '1 minute'
                returning minute, queue_id, waits, runs
            ), added as (
                select a.minute, a.queue_id, b.number, coalesce(sum(b.wait), 0) as wait, coalesce(sum(b.run), 0) as run
                  from appended as a cross join lateral unnest(a.waits, a.runs) with ordinality as b(wait, run, number)
                 group by a.minute, a.queue_id, b.number
            )
            insert into @schema@.minute_histogram (minute, queue_id, waits, runs, is_folded)
            select minute, queue_id, array_agg(wait order by number), array_agg(run order by number), true
              from added group by minute, queue_id;
            delete from @schema@.minute_histogram where minute < v_minute - interval '1 day';
        end if;
    end if;
    return extract(epoch from v_minute + interval '1 minute' - clock_timestamp());
end $$;
