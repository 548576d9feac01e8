-- Retired: for programs of the version before, for one release.
create or replace function penstock.load_of(p_job bigint) returns text
language sql stable parallel safe
begin atomic
    select l.name from penstock.load_range as r join penstock.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;
