-- Whether a job is here, and how it ended.

-- Whether a job is on this shard: waiting, running, or ended and not forgotten.
create or replace function @schema@.is_here(p_job bigint) returns boolean
language sql stable
begin atomic
    select exists (
        select from @schema@.finished where range = p_job / 1024 and (p_job % 1024)::smallint = any (positions)
        union all
        select from @schema@.dead where job_id = p_job
        union all
        select from @schema@.lease
         where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from @schema@.ready
         where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from @schema@.scheduled
         where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
        union all
        select from @schema@.blocked where job_id = p_job);
end;

-- Whether a job that was written here is anywhere: waiting, running, ended and not forgotten, or on another shard by now.
-- Who asks holds `finished` until the transaction ends, so that no slice leaves it meanwhile.
create or replace function @schema@.exists_anywhere(p_job bigint) returns boolean
language sql stable
begin atomic
    select @schema@.is_here(p_job) or exists (
        select from @schema@.outbox where job_id = p_job union all select from @schema@.forward where job_id = p_job);
end;

-- Whether a job may be waited for: it is somewhere here, or of another shard, which only a client can ask. One that is
-- gone there did not succeed.
create or replace function @schema@.can_be_parent(p_job bigint) returns boolean
language sql stable
begin atomic
    select case when @schema@.shard_of(p_job) = @schema@.here() then @schema@.exists_anywhere(p_job)
                else exists (select from @schema@.shard where number = @schema@.shard_of(p_job)) end;
end;

-- How a job ended: its outcome, or null while it has not. Of one on another shard, as far as it was heard of here. It
-- may come back from some ends (@schema@.may_come_back).
create or replace function @schema@.outcome_of(p_job bigint) returns int
language sql stable
begin atomic
    select coalesce(
        (select f.outcome::int from @schema@.finished as f
          where f.range = p_job / 1024 and (p_job % 1024)::smallint = any (f.positions) limit 1),
        (select 1 from @schema@.dead as d where d.job_id = p_job),
        (select 2 from @schema@.blocked as b where b.job_id = p_job and b.cancelled_at is not null),
        (select (not e.has_succeeded)::int from @schema@.parent_end as e where e.job_id = p_job));
end;

-- Why a child is cancelled: the first of its parents that did not succeed, and how it ended. On another shard that is not
-- told.
create or replace function @schema@.why_cancelled(p_parents bigint[]) returns text
language sql stable
begin atomic
    select coalesce(
        (select 'parent ' || p.id ||
                case when exists (select from @schema@.parent_end as e where e.job_id = p.id) then ' did not succeed'
                     else (array[' failed', ' was cancelled', ' was discarded', ' expired'])[o] end
           from unnest(p_parents) with ordinality as p(id, n) cross join lateral @schema@.outcome_of(p.id) as o
          where o <> 0 order by p.n limit 1),
        'a parent did not succeed');
end;

-- Whether a job that did not succeed can still be brought back: it is a dead letter, which can be retried, or was
-- cancelled for one; here, or as far as it was heard of on another shard.
create or replace function @schema@.may_come_back(p_job bigint) returns boolean
language sql stable
begin atomic
    select exists (
        select from @schema@.dead where job_id = p_job
        union all
        select from @schema@.blocked where job_id = p_job and cancelled_at is not null
        union all
        select from @schema@.parent_end
         where job_id = p_job and not is_final
           and not exists (select from @schema@.finished as f
                            where f.range = p_job / 1024 and (p_job % 1024)::smallint = any (f.positions)));
end;

-- How a job ended whose history lies in a slice on its way out, which is no part of `finished` any more; null: in none.
-- What is waited for is put back from there (@schema@.keep_parents).
create or replace function @schema@.outcome_apart(p_job bigint) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_slice   int;
    v_outcome int;
begin
    for v_slice in
        select number from @schema@.slice
         where (is_detached or taken_at is not null) and to_regclass('@schema@.finished_' || number) is not null
    loop
        begin
            execute format('select outcome from @schema@.finished_%s where range = $1 and $2 = any (positions) limit 1', v_slice)
                into v_outcome using p_job / 1024, (p_job % 1024)::smallint;
        exception when undefined_table then
            null; -- It was dropped since the list of slices was read.
        end;
        exit when v_outcome is not null;
    end loop;
    return v_outcome;
end $$;

-- The name of the load that a job came with.
create or replace function @schema@.load_of(p_job bigint) returns text
language sql stable parallel safe
begin atomic
    select l.name from @schema@.load_range as r join @schema@.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;
