-- The catalogue, workers, jobs and history.

alter table penstock.catalogue add column grown int not null default 7;
alter table penstock.shard add column grown int not null default 7;
alter table penstock.queue add column grown int not null default 7;
alter table penstock.queue_map add column grown int not null default 7;
alter table penstock.partition add column grown int not null default 7;
alter table penstock.worker add column grown int not null default 7;
alter table penstock.job add column grown int not null default 7;
alter table penstock.job_kept add column grown int not null default 7;
alter table penstock.finished add column grown int not null default 7;

do $$
declare
    v_table regclass;
begin
    for v_table in
        select oid from pg_class
         where relnamespace = 'penstock'::regnamespace and relkind = 'r' and relname ~ '^(job|finished)_[0-9]+$'
           and not exists (select from pg_inherits where inhrelid = pg_class.oid)
    loop
        execute format('alter table %s add column grown int not null default 7', v_table);
    end loop;
end $$;

-- A table of its own, which new functions write.
create table penstock.lookup (job_id bigint not null);
