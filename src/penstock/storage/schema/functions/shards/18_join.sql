-- Databases become shards.

-- Makes this database a shard, once: its number, its identity, and the system it belongs to. Nothing may have been
-- written to it under another number. Locks: the catalogue.
create or replace function @schema@.take_up_shard(p_number int, p_identity uuid, p_system uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_here @schema@.catalogue;
begin
    v_here := (select c from @schema@.catalogue as c for no key update);
    if v_here.identity is not null then
        return;
    end if;
    if p_number <> v_here.number then
        perform @schema@.refuse_used();
        execute format('alter sequence @schema@.range_number start with %s restart', p_number);
    end if;
    update @schema@.catalogue set number = p_number, identity = p_identity, system = p_system;
end $$;

-- Draws range numbers for nobody until another shard's is reached, but no more than so many; how many.
create or replace function @schema@.draw_up_to(p_range bigint, p_most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
    v_last  bigint;
begin
    select count(n), max(n) into v_count, v_last
      from (select nextval('@schema@.range_number') as n
              from @schema@.range_number as s
             cross join generate_series(1, least(p_most, p_range / 1024 - s.last_value / 1024 + (not s.is_called)::int))) as drawn;
    if v_count > 0 then
        perform @schema@.note_shortage(v_last);
    end if;
    return v_count;
end $$;

-- Lets a shard that has not written anything yet draw range numbers above this one, with a table for its first jobs.
create or replace function @schema@.start_ranges_after(p_range bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_first bigint := (p_range / 1024 + 1) * 1024 + @schema@.here();
    v_high  bigint;
begin
    if exists (select from @schema@.job) or (select last_value from @schema@.range_number) >= v_first then
        return;
    end if;
    execute format('alter sequence @schema@.range_number restart with %s', v_first);
    select max(high) into v_high from @schema@.job_table;
    if v_high < v_first + 65536 * 1024 then
        perform @schema@.add_job_table((v_first - v_high) / 1024 + 65536);
    end if;
end $$;

-- A database with jobs or queues of its own cannot become a further shard of another system.
create or replace function @schema@.refuse_used() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.queue) or (select is_called from @schema@.range_number) then
        raise exception using errcode = '22023', message =
            'InvalidInput: url: the database has queues of its own: a further shard has to be empty';
    end if;
end $$;

-- Enters a shard into the catalogue, or its new address; whether anything changed. Locks: the catalogue.
create or replace function @schema@.enter_shard(p_number int, p_identity uuid, p_address text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from @schema@.shard where number = p_number and identity = p_identity and address = p_address) then
        return false;
    end if;
    perform @schema@.next_version();
    insert into @schema@.shard (number, identity, address) values (p_number, p_identity, p_address)
    on conflict (number) do update set address = excluded.address where shard.identity = excluded.identity;
    return true;
end $$;

-- Draws a number for a database that is to become a further shard, and enters it as joining: no partition lives there
-- yet. One that was begun and not ended is gone on with. Numbers are never given again. Locks: the catalogue.
create or replace function @schema@.reserve_shard(p_identity uuid, p_address text, out number smallint, out identity uuid)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.next_version();
    select s.number, s.identity into reserve_shard.number, reserve_shard.identity
      from @schema@.shard as s where s.address = p_address and s.state = 'joining';
    if not found then
        insert into @schema@.shard as s (number, identity, address, state)
        select 1 + max(o.number), p_identity, p_address, 'joining' from @schema@.shard as o
        returning s.number, s.identity into reserve_shard.number, reserve_shard.identity;
    end if;
end $$;

-- From here on partitions may live on a shard that was joining; whether it was. Locks: the catalogue.
create or replace function @schema@.end_joining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.next_version();
    update @schema@.shard set state = 'active' where number = p_number and state = 'joining';
    return found;
end $$;
