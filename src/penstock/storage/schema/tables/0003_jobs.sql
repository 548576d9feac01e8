-- Jobs: a job is written once and does not change, but by a person: its run_at where it is rescheduled, its args where a
-- dead letter is retried with others. What moves are ranges: up to 1,024 jobs under one number, with the span [low, high) and a map of the members meant (null: the whole
-- span).

-- Dropped table partition by table partition. `args` is json, not jsonb: it comes
-- back byte for byte, is smaller, and costs less to write.
create table @schema@.job (
    id           bigint not null primary key,
    enqueued_at  timestamptz not null default now(),
    partition_id int not null,
    priority     smallint not null,
    task         text not null,
    key          bytea,
    args         json not null,
    attributes   jsonb
) partition by range (id);

comment on column @schema@.job.attributes is 'Rare facts: tenant, created_by, tags, idempotency_key, parents; run_at, where it was to wait for a time.';

-- The few jobs that outlive their table partition.
create table @schema@.job_kept (like @schema@.job including all);

-- The table partitions of `job`: ranges low (included) to high (not included), each in @schema@.job_<low>.
create table @schema@.job_table (
    low         bigint primary key,
    high        bigint not null,
    created_at  timestamptz not null default now(),
    is_detached boolean not null default false,
    writers     text[],
    keys_until  timestamptz,
    constraint job_table_is_not_empty check (high > low)
);

comment on column @schema@.job_table.is_detached is 'It is being let go: what is kept of it was moved, nobody needs the rest.';
comment on column @schema@.job_table.writers is 'The transactions in progress when it was passed; null before.';
comment on column @schema@.job_table.keys_until is 'Idempotency keys of its jobs outlive it, until then: their history went early, to a lake.';

-- Calls for a table at commit, when no statement of the transaction is using the others.
create table @schema@.shortage (at timestamptz not null default now());

create function @schema@.mend_shortage() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from @schema@.shortage where at <= now();
    begin
        lock table @schema@.job_table in share update exclusive mode nowait;
    exception when lock_not_available then
        return null;  -- Somebody else mends it now: he need not be waited for.
    end;
    -- What he has mended is not mended again.
    if (select last_value from @schema@.range_number) + 16384 * 1024 > (select max(high) from @schema@.job_table) then
        perform @schema@.add_job_table(65536);
    end if;
    return null;
end $$;

create constraint trigger a_shortage_is_mended_at_commit after insert on @schema@.shortage
    deferrable initially deferred for each row execute function @schema@.mend_shortage();
