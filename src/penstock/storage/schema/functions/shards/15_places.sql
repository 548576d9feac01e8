-- A partition that moved has a place on each shard it was on; see @schema@.partition.

-- The shards on which nothing is left.
create or replace function @schema@.drained_shards() returns smallint[]
language sql stable
begin atomic
    select coalesce(array_agg(number), '{}') from @schema@.shard where state = 'drained';
end;

-- The earlier place that this one waits for; null: none, or its queue has neither limit nor rate. One that is unused waits
-- for any other.
create or replace function @schema@.waits_for(p_place @schema@.partition) returns int
language sql stable
begin atomic
    select o.id
      from @schema@.partition as o join @schema@.queue as q on q.id = o.queue_id
     where o.queue_id = p_place.queue_id and o.number = p_place.number and o.id <> p_place.id
       and (q.running_limit is not null or q.rate is not null)
       and (o.left_at < coalesce(p_place.left_at, 9223372036854775807)
            or o.state = 'current' and p_place.state <> 'current' and p_place.left_at is null)
       and o.state <> 'shut'
     order by o.id limit 1;
end;

-- Whether a place was left before its queue had a limit or a rate. Then jobs may run in the place after it, too, and are
-- counted there alone: this one starts nothing, and what is ready there is carried when nothing runs there any more.
create or replace function @schema@.left_unlimited(p_place @schema@.partition) returns boolean
language sql stable
begin atomic
    select p_place.state = 'left'
       and exists (select from @schema@.queue as q
                    where q.id = p_place.queue_id and (q.running_limit is not null or q.rate is not null)
                      and q.limited_at > p_place.left_at)
       and exists (select from @schema@.partition as o
                    where o.queue_id = p_place.queue_id and o.number = p_place.number and o.id <> p_place.id
                      and (o.state = 'current' or o.left_at > p_place.left_at));
end;

-- Whether nothing may start in a partition of this shard: it is shut, or waits for its earlier place, or was left before its
-- queue had a limit.
create or replace function @schema@.is_still(p_partition int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_place @schema@.partition;
begin
    v_place := (select p from @schema@.partition as p where p.id = p_partition);
    return v_place.state = 'shut'
        or exists (select from @schema@.partition as o
                    where o.queue_id = v_place.queue_id and o.number = v_place.number and o.id <> p_partition)
           and (@schema@.waits_for(v_place) is not null or @schema@.left_unlimited(v_place));
end $$;

-- Whether a partition may come back to a place: not while anything starts there and elsewhere too.
create or replace function @schema@.may_return(p_place @schema@.partition) returns boolean
language sql stable
begin atomic
    select p_place.left_at is null or p_place.state = 'shut' or not exists (
           select from @schema@.partition as o join @schema@.queue as q on q.id = o.queue_id
            where o.queue_id = p_place.queue_id and o.number = p_place.number and o.id <> p_place.id
              and (q.running_limit is not null or q.rate is not null)
              and o.state in ('current', 'left'));
end;

-- The places on this shard that are shut, where others may wait for them; but not while something runs there, by a claim that
-- began before the limit came.
create or replace function @schema@.shut_places() returns table (partition_id int, left_at bigint)
language sql stable
begin atomic
    select p.id, p.left_at from @schema@.partition as p
     where p.shard = @schema@.here() and p.state = 'shut' and p.left_at is not null and exists (
           select from @schema@.partition as o where o.queue_id = p.queue_id and o.number = p.number and o.id <> p.id)
       and not exists (select from @schema@.lease as l where l.partition_id = p.id);
end;

-- The rate of a place may just have been used up on another shard: its other places here start with nothing.
create or replace function @schema@.spend_rate(p_partition int) returns void
language sql
begin atomic
    insert into @schema@.spent (partition_id, full_at, starts)
    select o.id, clock_timestamp() + @schema@.burst_of(q.rate) / q.rate * interval '1 second',
           coalesce((select s.starts from @schema@.spent as s where s.partition_id = o.id order by s.id desc limit 1), 0)
      from @schema@.partition as p
      join @schema@.partition as o on o.queue_id = p.queue_id and o.number = p.number and o.id <> p.id
      join @schema@.queue as q on q.id = p.queue_id and q.rate is not null
     where p.id = p_partition and o.shard = @schema@.here();
end;

-- Takes over that a place on another shard is shut, having left at a version of the catalogue; whether that is news. What
-- is said of an earlier time does not count. Where its leaving is not known here yet it is told again.
create or replace function @schema@.note_shut(p_partition int, p_left_at bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update @schema@.partition set state = 'shut'
     where id = p_partition and shard <> @schema@.here() and left_at = p_left_at and state = 'left';
    if not found then
        return false;
    end if;
    perform @schema@.spend_rate(p_partition);
    perform @schema@.wake(queue_id) from @schema@.partition where id = p_partition;
    return true;
end $$;

-- Takes over that the places on drained shards are shut: nobody may have told.
create or replace function @schema@.note_drained() returns void
language sql
begin atomic
    select @schema@.note_shut(id, left_at) from @schema@.partition
     where shard = any (@schema@.drained_shards()) and state = 'left';
end;
