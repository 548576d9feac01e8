-- Whether a job is here, and how it ended.

-- Whether a job is on this shard: waiting, running, or ended and not forgotten.
create or replace function penstock.is_here(p_job bigint) returns boolean
language sql stable
begin atomic
    select exists (
        select from penstock.finished where range = p_job / 1024 and (p_job % 1024)::smallint = any (positions)
        union all
        select from penstock.dead where job_id = p_job
        union all
        select from penstock.lease
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.ready
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.scheduled
         where range = p_job / 1024 and penstock.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from penstock.blocked where job_id = p_job);
end;

-- Whether a job that was written here is anywhere: waiting, running, ended and not forgotten, or on another shard by now.
-- Who asks holds `finished` until the transaction ends, so that no slice leaves it meanwhile.
create or replace function penstock.has_place(p_job bigint) returns boolean
language sql stable
begin atomic
    select penstock.is_here(p_job) or exists (
        select from penstock.outbox where job_id = p_job union all select from penstock.forward where job_id = p_job);
end;

-- Whether a job may be waited for: it is somewhere here, or of another shard, which only a client can ask. One that is
-- gone there did not succeed.
create or replace function penstock.can_be_parent(p_job bigint) returns boolean
language sql stable
begin atomic
    select case when penstock.shard_of(p_job) = penstock.here() then penstock.has_place(p_job)
                else exists (select from penstock.shard where number = penstock.shard_of(p_job)) end;
end;

-- How a job ended: its outcome, or null while it has not. Of one on another shard, as far as it was heard of here.
create or replace function penstock.outcome_of(p_job bigint) returns int
language sql stable
begin atomic
    select coalesce(
        (select f.outcome::int from penstock.finished as f
          where f.range = p_job / 1024 and (p_job % 1024)::smallint = any (f.positions) limit 1),
        (select 1 from penstock.dead as d where d.job_id = p_job),
        (select (not e.has_succeeded)::int from penstock.parent_end as e where e.job_id = p_job));
end;

-- How a job ended whose history lies in a slice on its way out, which is no part of `finished` any more; null: in none.
-- What is waited for is put back from there (penstock.carry_parents).
create or replace function penstock.outcome_apart(p_job bigint) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_slice   int;
    v_outcome int;
begin
    for v_slice in
        select number from penstock.slice
         where (is_detached or taken_at is not null) and to_regclass('penstock.finished_' || number) is not null
    loop
        begin
            execute format('select outcome from penstock.finished_%s where range = $1 and $2 = any (positions) limit 1', v_slice)
                into v_outcome using p_job / 1024, (p_job % 1024)::smallint;
        exception when undefined_table then
            null; -- It was dropped since the list of slices was read.
        end;
        exit when v_outcome is not null;
    end loop;
    return v_outcome;
end $$;

-- The name of the load that a job came with.
create or replace function penstock.load_of(p_job bigint) returns text
language sql stable parallel safe
begin atomic
    select l.name from penstock.load_range as r join penstock.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;
