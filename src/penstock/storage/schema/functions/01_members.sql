-- Member bitmaps: bit p is the job at position p of the range, and where there is none the whole span is meant.

-- The bitmap of the positions from low up to, but not, high.
create or replace function @schema@.span(low int, high int) returns bit(1024)
language sql immutable strict parallel safe
return (repeat('0', low) || repeat('1', high - low) || repeat('0', 1024 - high))::bit(1024);

create or replace function @schema@.single("position" int) returns bit(1024)
language sql immutable strict parallel safe
return set_bit(repeat('0', 1024)::bit(1024), "position", 1);

create or replace function @schema@.members_count(low smallint, high smallint, members bit(1024)) returns int
language sql immutable parallel safe
return case when members is null then high - low else bit_count(members)::int end;

create or replace function @schema@.has_member(low smallint, high smallint, members bit(1024), "position" int) returns boolean
language sql immutable parallel safe
return "position" >= low and "position" < high and (members is null or get_bit(members, "position") = 1);

create or replace function @schema@.first_member(low smallint, members bit(1024)) returns int
language sql immutable parallel safe
return case when members is null then low::int else position(B'1' in members) - 1 end;

create or replace function @schema@.positions(low smallint, high smallint, members bit(1024)) returns smallint[]
language sql immutable parallel safe
begin atomic
    select array(select p::smallint from generate_series(low::int, high - 1) as p
                 where members is null or get_bit(members, p) = 1);
end;
