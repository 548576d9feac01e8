-- What follows from a rate alone.

-- How many may start together after a pause, by a rate: a second's worth, and at least one. policy/rate.py has the same.
create or replace function @schema@.burst_of(p_rate double precision) returns double precision
language sql immutable parallel safe
return greatest(1, floor(p_rate));

-- What the bucket of a rate holds: it fills evenly, up to a second's worth of starts and at least one, and was left so
-- that it is full at p_full_at.
create or replace function @schema@.tokens(p_rate double precision, p_full_at timestamptz, p_now timestamptz) returns double precision
language sql immutable parallel safe
begin atomic
    select @schema@.burst_of(p_rate) - p_rate * greatest(0, extract(epoch from p_full_at - p_now)::double precision);
end;
