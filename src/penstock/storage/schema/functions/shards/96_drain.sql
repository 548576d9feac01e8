-- Draining a shard: everything leaves it, while all others run and it is used itself. What is left in the earlier place of
-- a partition that moved leaves in the same way, where its queue has a limit or a rate (see @schema@.partition).
--
--   begin    no partition comes there any more (@schema@.begin_draining)
--   vacate   its current partitions are taken over by others, queue by queue: a new map of each (@schema@.vacate_queue)
--   work     what is ready or runs there is worked off where it is
--   send     what cannot end there leaves through the outbox, as it is: see @schema@.send_off
--   seal     nobody writes to it any more, whatever map they believe in (@schema@.end_writes)
--   end      it is drained when nothing is left: another shard leads, where it did
--
-- Each can be done again, and by several at once.

-- No partition comes to a shard from now on; false where that was so. Locks: the catalogue.
create or replace function @schema@.begin_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.next_version();
    if exists (select from @schema@.shard where number = p_number and state = 'joining') then
        perform @schema@.refuse('shard', format('shard %s is not added yet: end that with `penstock shards add` first', p_number));
    elsif not exists (select from @schema@.shard where number <> p_number and state = 'active') then
        perform @schema@.refuse('shard', format(
            'shard %s is the last one in use, and its partitions have nowhere to go: add another with `penstock shards add` first',
            p_number));
    end if;
    update @schema@.shard set state = 'draining' where number = p_number and state = 'active';
    return found;
end $$;

-- Moves the current partitions of a queue off a shard, to those of the shards in use that have the fewest of them and to
-- which they may come; whether there were any that could. Locks: the catalogue, the map's row, the queue's.
create or replace function @schema@.vacate_queue(p_name text, p_shard int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_queue   int;
    v_number  int;
    v_target  int;
    v_numbers int[] := '{}';
    v_shards  int[] := '{}';
begin
    -- Whoever does the same comes before or after.
    perform from @schema@.catalogue for no key update;
    select id into v_queue from @schema@.queue where name = p_name;
    for v_number in
        select number from @schema@.partition where queue_id = v_queue and state = 'current' and shard = p_shard order by number
    loop
        select s.number into v_target
          from @schema@.shard as s
         cross join lateral (
               select count(*) filter (where p.queue_id = v_queue) as of_queue, count(*) as of_all
                 from @schema@.partition as p where p.shard = s.number and p.state = 'current') as has
         cross join lateral (select count(*) as n from unnest(v_shards) as g(number) where g.number = s.number) as given
         where s.state = 'active' and not exists (
               select from @schema@.partition as p
                where p.queue_id = v_queue and p.number = v_number and p.shard = s.number and not @schema@.may_return(p))
         order by has.of_queue + given.n, has.of_all + given.n, s.number limit 1;
        if v_target is not null then
            v_numbers := v_numbers || v_number;
            v_shards := v_shards || v_target;
        end if;
    end loop;
    return v_numbers <> '{}' and @schema@.move_partitions(p_name, v_numbers, v_shards);
end $$;

-- A shard is drained from now on; false where it was not being drained. One that leads says so of itself, and has handed
-- over what it decided about loads. Locks: the catalogue.
create or replace function @schema@.end_draining(p_number int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_number = @schema@.here() then
        delete from @schema@.load_share;
        delete from @schema@.load_batch where commit_name is not null;
        delete from @schema@.load_abort;
    end if;
    perform @schema@.next_version();
    update @schema@.shard set state = 'drained' where number = p_number and state = 'draining';
    if not found then
        return false;
    end if;
    perform @schema@.note_drained();
    return true;
end $$;
