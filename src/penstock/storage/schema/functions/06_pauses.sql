-- Loads that are paused: their jobs wait for a time that never comes.

-- Where a paused load's jobs wait: after all times, in the order they had. Those that come from a shard that is drained
-- wait before the others of a shard: there is room before the first.
create or replace function @schema@.paused_at(p_pos bigint) returns timestamptz
language sql immutable parallel safe
return timestamptz '14000-01-01 00:00:00+00' + p_pos * interval '1 microsecond';

-- Whatever waits until then or longer waits for its load.
create or replace function @schema@.paused_from() returns timestamptz
language sql immutable parallel safe
return timestamptz '10000-01-01 00:00:00+00';

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
