-- Slices on their way into a lake.

-- Whether anything has ended since the slice in use was taken into use.
create or replace function @schema@.has_ended() returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_has boolean;
begin
    execute format('select exists (select from @schema@.finished_%s)', @schema@.current_slice()) into v_has;
    return v_has;
end $$;

-- Takes every sealed slice that prune has not marked. The caller has prune's duty, so that nobody moves rows out of one; a
-- prune that lost it meets the mark.
create or replace function @schema@.take_slices() returns void
language sql
begin atomic
    update @schema@.slice set taken_at = now()
     where taken_at is null and not is_detached and @schema@.is_sealed(writers, '@schema@.finished');
end;

-- The idempotency keys of a slice's jobs live on for p_days, whatever becomes of the tables of their jobs: that is noted
-- with the table, and where that is gone already, and the job was kept, with what would have been one for its range.
create or replace function @schema@.keep_keys(p_slice int, p_days double precision) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_until timestamptz := now() + make_interval(secs => 86400 * p_days);
begin
    execute format('update @schema@.job_table as p set keys_until = greatest(p.keys_until, $1)
          where exists (select from @schema@.finished_%s as f where f.range >= p.low and f.range < p.high)', p_slice)
        using v_until;
    execute format($sql$
        insert into @schema@.job_table (low, high, is_detached, writers, keys_until)
        select distinct f.range, f.range + 1, true, '{}'::text[], $1 from @schema@.finished_%s as f
         where not exists (select from @schema@.job_table as p where f.range >= p.low and f.range < p.high)
            on conflict do nothing $sql$, p_slice)
        using v_until;
end $$;

-- Whether a slice has any row.
create or replace function @schema@.has_rows(p_slice int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_has boolean;
begin
    execute format('select exists (select from @schema@.finished_%s)', p_slice) into v_has;
    return v_has;
end $$;

-- Keeps everybody from changing a slice until the transaction ends. Locks: the table, against writers.
create or replace function @schema@.lock_slice(p_slice int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('lock table @schema@.finished_%s in share mode', p_slice);
end $$;

-- Lets a slice go that is in a lake: with its table go failures, progress and asks to stop of its jobs, all at once, so
-- that nobody ever meets one without the other. Locks: the table, against everybody, asked for 100 ms at most, and last:
-- who reads it waits for the drop alone.
create or replace function @schema@.let_slice_go(p_slice int, p_days double precision) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('lock_timeout', '100ms', true);
    perform @schema@.keep_keys(p_slice, p_days);
    perform @schema@.forget_slice(p_slice, 1 << 30);
    perform @schema@.drop_table('finished_' || p_slice);
    delete from @schema@.slice where number = p_slice;
end $$;
