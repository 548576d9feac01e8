-- What failed for the same reason: the shape of an error, the cause it stands for, and how often there was which.

-- The line of an error that says what it is: the first, but where Python's own traceback was given, the last.
create or replace function @schema@.error_line(p_error text) returns text
language sql immutable parallel safe
return left(rtrim(case when p_error like 'Traceback (most recent call last)%'
                       then split_part(rtrim(p_error, e' \r\n'), e'\n', -1)
                       else split_part(coalesce(p_error, ''), e'\n', 1) end, e' \r'), 300);

-- What is the same of an error from job to job: its line, in which … stands for what differs: quoted texts, addresses of
-- mail, queries, ids, numbers and times, and lists of them. Where Python's error is about a name in the code, what is quoted
-- is that name, and stays. The patterns mean the same in Java, where Spark's report has them too (spark/reporting/error_shape).
create or replace function @schema@.error_shape(p_error text) returns text
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    v_line text := @schema@.error_line(p_error);
begin
    if v_line !~ '^(Attribute|Import|Key|ModuleNotFound|Name|Type|UnboundLocal)Error:' then
        v_line := regexp_replace(v_line, '(?<![0-9A-Za-z_])(''[^'']*''|"[^"]*"|`[^`]*`)(?![0-9A-Za-z_])', '…', 'g');
    end if;
    v_line := regexp_replace(v_line, '[0-9A-Za-z_.+-]+@[0-9A-Za-z.-]+', '…', 'g');
    v_line := regexp_replace(v_line, '[?][^ ]*=[^ ]*', '…', 'g');
    if v_line ~ '[0-9]' then
        v_line := regexp_replace(v_line, '(?<![0-9A-Za-z_])(0x)?(?=[A-Fa-f-]*[0-9])[0-9A-Fa-f-]{8,}(?![0-9A-Za-z_])', '…', 'g');
        v_line := regexp_replace(v_line, '[A-Za-z_]*[0-9]+[A-Za-z_]+[0-9][0-9A-Za-z_]*', '…', 'g');
        v_line := regexp_replace(v_line, '[0-9]+([.,:][0-9]+)*', '…', 'g');
    end if;
    return left(regexp_replace(v_line, '…([-+.,:/ ]*…)+', '…', 'g'), 200);
end $$;

-- The number of a cause: equal wherever its queue, task and shape are.
create or replace function @schema@.cause_of(p_queue int, p_task text, p_shape text) returns bigint
language sql immutable parallel safe
return @schema@.h64('penstock/cause/v1'::bytea, convert_to(
    p_queue::text || e'\x1f' || coalesce(p_task, '') || e'\x1f' || p_shape, 'UTF8'));

-- The five minutes that an instant is in.
create or replace function @schema@.period_of(p_at timestamptz) returns timestamptz
language sql immutable parallel safe
return date_bin('5 minutes', p_at, timestamptz '2000-01-01 00:00:00+00');

-- fold_causes: what was said of causes is added to them, and what is older than a day forgotten. Of each five minutes of a
-- queue at most p_most causes have rows of their own. One folder at a time; the others pass: only it writes causes.
create or replace function @schema@.fold_causes(p_most int default 50) returns int
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    if not pg_try_advisory_xact_lock(hashtext('@schema@.fold_causes')) then
        return 0;
    end if;
    with gone as (
        delete from @schema@.cause_tally returning cause, queue_id, at, failed, dead, task, shape
    ), said as materialized (
        select cause, max(queue_id) as queue_id, max(task) as task, max(shape) as shape, sum(dead) as dead,
               max(at) filter (where shape is not null) as failed_at
          from gone group by cause
    ), counted as (
        select queue_id, cause, @schema@.period_of(at) as began_at, sum(failed) as failed
          from gone where failed > 0 group by 1, 2, 3
    ), known as (
        select c.*, exists (select from @schema@.cause_period as k
                             where k.queue_id = c.queue_id and k.began_at = c.began_at and k.cause = c.cause) as is_there
          from counted as c
    ), placed as materialized (
        select k.*, k.is_there or p_most >=
                    (select count(*) from @schema@.cause_period as o
                      where o.queue_id = k.queue_id and o.began_at = k.began_at and o.cause <> 0)
                    + row_number() over (partition by k.queue_id, k.began_at, k.is_there order by k.failed desc, k.cause) as is_named
          from known as k
    ), periods as (
        insert into @schema@.cause_period as p (queue_id, began_at, cause, failed)
        select queue_id, began_at, case when is_named then cause else 0 end, sum(failed) from placed group by 1, 2, 3
        on conflict (queue_id, began_at, cause) do update set failed = p.failed + excluded.failed
    ), changed as (
        update @schema@.cause as c set dead = c.dead + s.dead, failed_at = greatest(c.failed_at, s.failed_at)
          from said as s where c.id = s.cause
    ), made as (
        insert into @schema@.cause (id, queue_id, task, shape, dead, failed_at)
        select cause, queue_id, task, shape, dead, failed_at from said as s
         where shape is not null and not exists (select from @schema@.cause as c where c.id = s.cause)
           and (dead > 0 or exists (select from placed as p where p.cause = s.cause and p.is_named))
    )
    select count(*) into v_count from gone;
    delete from @schema@.cause_period where began_at < now() - interval '1 day 5 minutes';
    delete from @schema@.cause where dead = 0 and failed_at < now() - interval '1 day 5 minutes';
    return v_count;
end $$;
