-- The table partitions of `job` and `finished`: made ahead, one by one, so that nobody ever waits for one.
-- A new table is created on its own, with the CHECK that lets ATTACH skip its scan: ATTACH takes only
-- SHARE UPDATE EXCLUSIVE on the parent, which reads and writes do not meet. Whoever makes one locks the table in which
-- they are listed: not an advisory lock, which could be taken by anybody who may connect.

-- Adds one table partition of `job` for the next `calls` range numbers of this shard.
create or replace function @schema@.add_job_table(calls bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_low  bigint;
    v_high bigint;
    v_limit numeric;
begin
    lock table @schema@.job_table in share update exclusive mode;
    select coalesce(max(high), 0) into v_low from @schema@.job_table;
    v_high := least(v_low + calls * 1024, 9007199254740992);
    -- A caller with an old snapshot does not see the row of a table that was just made; the table itself he sees.
    if v_high <= v_low or to_regclass(format('@schema@.job_%s', v_low)) is not null then
        return;
    end if;
    v_limit := least(v_high::numeric * 1024, 9223372036854775807);
    insert into @schema@.job_table (low, high) values (v_low, v_high);
    execute format('create table @schema@.job_%s (like @schema@.job including all, check (id >= %s and id < %s))',
                   v_low, v_low * 1024, v_limit);
    execute format('alter table @schema@.job attach partition @schema@.job_%s for values from (%s) to (%s)',
                   v_low, v_low * 1024, v_limit);
end $$;

-- Adds one slice of `finished`, not in use yet.
create or replace function @schema@.add_slice() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_number int;
begin
    lock table @schema@.slice in share update exclusive mode;
    select coalesce(max(number), 0) + 1 into v_number from @schema@.slice;
    insert into @schema@.slice (number) values (v_number);
    execute format('create table @schema@.finished_%s (like @schema@.finished including all, check (slice = %s))',
                   v_number, v_number);
    execute format('alter table @schema@.finished attach partition @schema@.finished_%s for values in (%s)',
                   v_number, v_number);
end $$;

-- Takes the next slice into use: from now on what ends is written there.
create or replace function @schema@.use_next_slice() returns int
language sql
begin atomic
    update @schema@.slice set used_from = clock_timestamp()
     where number = (select min(number) from @schema@.slice where used_from is null)
    returning number;
end;

create or replace function @schema@.current_slice() returns int
language sql stable
begin atomic
    select max(number) from @schema@.slice where used_from is not null;
end;

-- Asks for another table partition of `job` where the last one made will soon be reached.
create or replace function @schema@.note_shortage(p_range bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_range + 16384 * 1024 > (select max(high) from @schema@.job_table) then
        insert into @schema@.shortage default values;
    end if;
end $$;

-- Draws a range number. Every 64th draw looks whether the tables ahead are running out: upkeep makes them in time,
-- and where no worker has run for long the producer that comes near the end makes one as it commits. Not before: a
-- statement that writes jobs cannot add a table to them, and a caller's transaction may last.
create or replace function @schema@.draw_range() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_range bigint := nextval('@schema@.range_number');
begin
    if (v_range >> 10) % 64 = 0 then
        perform @schema@.note_shortage(v_range);
    end if;
    return v_range;
end $$;
