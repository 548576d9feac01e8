-- Two values that say more than they seem to: the time that a paused load waits for, and the order of carried jobs.
-- Whoever asks what such a value means asks here.

-- Until when a paused load's jobs wait: after all times that anybody can give, in the order they had. Those that come
-- from a shard that is drained wait before the others of a shard: there is room before the first.
create or replace function @schema@.paused_at(p_pos bigint) returns timestamptz
language sql immutable parallel safe
return timestamptz '14000-01-01 00:00:00+00' + p_pos * interval '1 microsecond';

-- Whatever waits until then or longer waits for its load.
create or replace function @schema@.paused_from() returns timestamptz
language sql immutable parallel safe
return timestamptz '10000-01-01 00:00:00+00';

-- When a job of a paused load is due once the load is resumed: in the past, in the order it had, whatever its number.
create or replace function @schema@.resumed_at(p_paused_at timestamptz) returns timestamptz
language sql stable parallel safe
return p_paused_at - (@schema@.paused_at(0) - timestamptz '1700-01-01 00:00:00+00');

-- Where a job stands in the order that was ready on another shard: before all that are here, which were enqueued later,
-- in the order it had there. Below zero: no shard draws so many numbers.
create or replace function @schema@.carried_pos(p_pos bigint) returns bigint
language sql immutable parallel safe
return p_pos - (1::bigint << 53);
