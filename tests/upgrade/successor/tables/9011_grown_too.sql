-- The catalogue, workers, jobs and history.

alter table @schema@.catalogue add column grown int not null default 7;
alter table @schema@.shard add column grown int not null default 7;
alter table @schema@.queue add column grown int not null default 7;
alter table @schema@.queue_map add column grown int not null default 7;
alter table @schema@.partition add column grown int not null default 7;
alter table @schema@.worker add column grown int not null default 7;
alter table @schema@.job_kept add column grown int not null default 7;

-- Where taking a table partition out was interrupted, that is brought to its end first: the table would not grow with the
-- others, and could not be taken out any more. Those that were taken out grow by themselves.
lock table @schema@.job, @schema@.finished in access exclusive mode;
do $$
declare
    v_pending record;
    v_apart   regclass;
begin
    for v_pending in select inhparent::regclass as parent, inhrelid::regclass as name from pg_inherits where inhdetachpending loop
        execute format('alter table %s detach partition %s finalize', v_pending.parent, v_pending.name);
    end loop;
    alter table @schema@.job add column grown int not null default 7;
    alter table @schema@.finished add column grown int not null default 7;
    for v_apart in
        select oid from pg_class
         where relnamespace = '@schema@'::regnamespace and relname ~ '^(job|finished)_[0-9]+$' and relkind = 'r' and not relispartition
    loop
        execute format('alter table %s add column grown int not null default 7', v_apart);
    end loop;
end $$;

-- A table of its own, which new functions write.
create table @schema@.lookup (job_id bigint not null);
