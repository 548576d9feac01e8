-- Loads: bulk writes with a name. Their jobs are written ahead, range by range, where nobody can claim them (staged);
-- publishing makes all of them visible in one transaction, together with the row that says that it was done.

-- Joins those who write stages under a name, p_most of them, until the transaction ends; false where there are so many
-- already. Only tries: whoever waited would keep a connection for it.
create or replace function @schema@.enter_stage(p_name text, p_most int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    for i in 1..p_most loop
        if pg_try_advisory_xact_lock(hashtext('@schema@.stage:' || p_name), i) then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Notes ranges whose jobs the same transaction writes.
create or replace function @schema@.stage_ranges(p_stage text, p_ranges json) returns void
language sql
begin atomic
    insert into @schema@.load_range (range, stage, size, partition_id, priority, run_at, epoch, has_idempotency_keys, task)
    select range, p_stage, size, partition_id, priority, run_at, epoch, has_idempotency_keys, task
      from json_to_recordset(p_ranges)
        as g(range bigint, size smallint, partition_id int, priority smallint, run_at timestamptz, epoch int,
             has_idempotency_keys boolean, task text);
end;

-- Forgets stages that nobody published within a day, and what is not needed any more of a stream's batches. What a commit
-- on another shard decides about stays, whatever its age.
create or replace function @schema@.forget_stages() returns bigint
language sql
begin atomic
    with old as (
        select b.load_id, b.batch from @schema@.load_batch as b join @schema@.load as l on l.id = b.load_id and l.is_stream
         where b.published_at < now() - interval '30 days'
           and b.batch < (select max(n.batch) - 1000 from @schema@.load_batch as n where n.load_id = b.load_id)
           and not exists (select from @schema@.load_share as p
                            where p.load_id = b.load_id and p.batch = b.batch and p.published_at is null)
         limit 10000
    ), batches as (
        delete from @schema@.load_batch as b using old as o where b.load_id = o.load_id and b.batch = o.batch
    ), aborts as (
        delete from @schema@.load_abort where at < now() - interval '1 year'
    ), stages as (
        delete from @schema@.load_range where load_id is null and commit_name is null and range in (
            select range from @schema@.load_range
             where load_id is null and commit_name is null and created_at < now() - interval '1 day' limit 10000)
        returning 1
    )
    select count(*) from stages;
end;
