-- Retired: for programs of the version before, for one release.
create or replace function @schema@.load_of(p_job bigint) returns text
language sql stable parallel safe
begin atomic
    select l.name from @schema@.load_range as r join @schema@.load as l on l.id = r.load_id where r.range = p_job / 1024;
end;
