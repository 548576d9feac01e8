-- The shard that leads: the catalogue is changed there, and copied from there.

-- Whether the catalogue is changed here: on the shard of the lowest number that is not drained.
create or replace function @schema@.is_lead() returns boolean
language sql stable
begin atomic
    select not exists (select from @schema@.shard as s
                        where s.number <= c.number and (s.number < c.number) = (s.state <> 'drained'))
      from @schema@.catalogue as c;
end;
