-- Jobs that are unique while they wait: of those that have a text in common one waits. The text lies among the idempotency
-- keys, at its home, with the newest of these jobs. Whoever comes next finds that one waiting, and is given it; or takes its
-- text over, if it does not wait any more. A job waits until it is leased for the first time: one that was given back or
-- snoozed since loses its text (@schema@.drop_unique), and so does one that was rescued and charged nothing; others that were
-- retried or rescued are known by their figures.

-- What these jobs have in common. penstock.model.unique_key computes the same.
create or replace function @schema@.unique_text(p_task text, p_args jsonb, p_unique_key text) returns text
language sql stable parallel safe
return 'penstock.unique:' || encode(sha256(convert_to(
    case when p_unique_key is null then p_task || e'\x1f' || p_args::text else e'\x1f' || p_unique_key end, 'UTF8')), 'hex');

-- Whether a job waits here and was never leased, in one look.
create or replace function @schema@.waits_unstarted(p_job bigint) returns boolean
language sql stable
begin atomic
    select exists (
        select from @schema@.ready
         where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
           and attempt = 1 and rescues = 0 and reason is null
        union all
        select from @schema@.scheduled
         where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
           and attempt = 1 and rescues = 0
        union all
        select from @schema@.blocked where job_id = p_job and cancelled_at is null);
end;

-- The same, and then it is not leased before this transaction ends: its row is locked, and claims pass over it. A job moves
-- from blocked to scheduled to ready, and is looked for in that order; one that a person moved back is looked for again.
-- Locks: its row, shared.
create or replace function @schema@.keep_unstarted(p_job bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    while @schema@.waits_unstarted(p_job) loop
        perform from @schema@.blocked where job_id = p_job and cancelled_at is null for share;
        if found then
            return true;
        end if;
        perform from @schema@.scheduled
          where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
            and attempt = 1 and rescues = 0 for share;
        if found then
            return true;
        end if;
        perform from @schema@.ready
          where range = p_job / 1024 and @schema@.has_member(low, high, members, (p_job % 1024)::int)
            and attempt = 1 and rescues = 0 and reason is null for share;
        if found then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Gives a text to a new job, and returns null; or returns the job that has it and waits. Of two that come at once the second
-- waits for the first. p_keeps: the job that is returned must not start before the transaction ends, for that is when
-- what its caller wrote is seen. Without that a look is enough: it waited when it was looked for, so it starts after
-- whatever was there before the call. (A row that many callers lock in turn would never be claimed.)
-- Locks: the text, where the new job gets it; with p_keeps the waiting job's row, shared.
create or replace function @schema@.take_unique(p_queue int, p_text text, p_job bigint, p_keeps boolean) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_holder bigint;
begin
    loop
        insert into @schema@.dedup (queue_id, idempotency_key, job_id, is_unique) values (p_queue, p_text, p_job, true)
        on conflict do nothing;
        if found then
            return null;
        end if;
        select job_id into v_holder from @schema@.dedup where queue_id = p_queue and idempotency_key = p_text;
        if not found then
            continue; -- It was dropped since.
        elsif p_keeps and @schema@.keep_unstarted(v_holder) or not p_keeps and @schema@.waits_unstarted(v_holder) then
            -- One that was given back just then waits again, without its text.
            if exists (select from @schema@.dedup where queue_id = p_queue and idempotency_key = p_text and job_id = v_holder) then
                return v_holder;
            end if;
        else
            update @schema@.dedup set job_id = p_job, is_carried = false, is_unique = true
             where queue_id = p_queue and idempotency_key = p_text and job_id = v_holder;
            if found then
                return null;
            end if;
        end if;
    end loop;
end $$;

-- Jobs that were leased and wait again lose their texts. One that another job takes over just now is lost to that one.
-- Locks: their texts, skipping those. Index: dedup_unique.
create or replace function @schema@.drop_unique(p_jobs bigint[]) returns void
language sql
begin atomic
    delete from @schema@.dedup where (queue_id, idempotency_key) in (
        select queue_id, idempotency_key from @schema@.dedup where is_unique and job_id = any (p_jobs) for update skip locked);
end;
