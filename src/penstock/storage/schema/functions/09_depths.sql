-- How much there is in a partition.

-- Jobs that wait in a partition, ready and not under a lease: what max_length bounds.
create or replace function @schema@.waiting_in(p_partition int) returns bigint
language sql stable
begin atomic
    select coalesce((select opened from @schema@.depth where partition_id = p_partition), 0)
         - coalesce((select sum(@schema@.members_count(low, high, members)) from @schema@.lease where partition_id = p_partition), 0);
end;

-- Jobs that are open in a partition, or will be: without those of paused loads, which are due at no time. Index: load_paused,
-- scheduled_by_due_time.
create or replace function @schema@.expected_in(p_depth @schema@.depth) returns bigint
language sql stable
begin atomic
    select p_depth.opened + p_depth.scheduled + p_depth.blocked
         - case when exists (select from @schema@.load where is_paused)
                then coalesce((select sum(@schema@.members_count(low, high, members)) from @schema@.scheduled
                                where due_at >= @schema@.paused_from() and partition_id = p_depth.partition_id), 0)
                else 0 end;
end;
