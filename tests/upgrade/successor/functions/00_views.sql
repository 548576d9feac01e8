-- One view has a further column, between the others: it could not be replaced.

create view @schema@.waited_for as
    select parent_id from @schema@.dependency union all select parent_id from @schema@.awaited;

create view @schema@.depth as
    select partition_id,
           coalesce(sum(opened), 0)::bigint as opened, coalesce(sum(scheduled), 0)::bigint as scheduled,
           coalesce(sum(blocked), 0)::bigint as blocked, coalesce(sum(dead), 0)::bigint as dead,
           coalesce(sum(enqueued), 0)::bigint as enqueued, coalesce(sum(completed), 0)::bigint as completed,
           coalesce(sum(failed), 0)::bigint as failed, coalesce(sum(cancelled), 0)::bigint as cancelled,
           coalesce(sum(discarded), 0)::bigint as discarded, coalesce(sum(expired), 0)::bigint as expired
      from (select partition_id, opened, scheduled, blocked, dead, enqueued, completed, failed, cancelled, discarded, expired
              from @schema@.total
            union all
            select partition_id, opened, scheduled, blocked, dead, enqueued, completed, failed, cancelled, discarded, expired
              from @schema@.tally) as counted
     group by partition_id;

create view @schema@.finished_job as
    select f.range * 1024 + u.position as job_id, f.slice, f.grown, f.partition_id, f.outcome, f.attempt,
           f.finished_at - make_interval(secs => greatest(0, u.start_age - u.run_time) / 1e6) as finished_at,
           f.finished_at - make_interval(secs => u.start_age / 1e6) as started_at,
           f.worker, u.result, coalesce(u.error, f.reason) as error
      from @schema@.finished as f,
           unnest(f.positions, f.start_ages, f.run_times, f.results, f.errors)
               as u(position, start_age, run_time, result, error);

create view @schema@.job_stored as
    select id, enqueued_at, partition_id, priority, task, key, args, attributes, grown from @schema@.job
    union all
    select id, enqueued_at, partition_id, priority, task, key, args, attributes, grown from @schema@.job_kept;
