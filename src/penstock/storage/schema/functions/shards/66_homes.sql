-- Homes: an idempotency key is unique on one shard, its home. Where a new map of a queue gives it another, the key is
-- carried there. Until all are carried, whoever writes a key at its new home first asks the old one, where nothing can be
-- written by the old map any more. So a key is found on the way: it is deleted at the old home only after it was written at
-- the new one.

-- Where a key belongs by the queue's map of now, from the form in which it is stored.
create or replace function @schema@.home_of_stored(p_queue @schema@.queue, p_stored text) returns smallint
language sql stable
begin atomic
    select case when not p_queue.is_owned then @schema@.home_of(p_stored, p_queue.homes)
                when split_part(p_stored, ':', 1) = '' then @schema@.home_of(substr(p_stored, 2), p_queue.homes)
                else (select p.shard from @schema@.queue_map as m
                        join @schema@.partition as p on p.id = m.partition_ids[
                             1 + @schema@.partition_of(decode(split_part(p_stored, ':', 1), 'hex'), m.partitions)]
                       where m.queue_id = p_queue.id and m.epoch = p_queue.epoch) end;
end;

-- Of the next keys of a queue that are here, those that belong elsewhere by its map of this epoch, and the key to go on
-- after (null: no more). Without is_current the queue has another map here, and nothing is said.
create or replace function @schema@.strayed_keys(
    p_queue int, p_epoch int, p_after text, p_limit int,
    out is_current boolean, out homes smallint[], out keys text[], out job_ids bigint[], out last_key text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_queue @schema@.queue;
begin
    v_queue := (select q from @schema@.queue as q where q.id = p_queue);
    is_current := v_queue.epoch = p_epoch;
    if not is_current then
        return;
    end if;
    with next as materialized (
        select idempotency_key, job_id, @schema@.home_of_stored(v_queue, idempotency_key) as home
          from @schema@.dedup where queue_id = p_queue and idempotency_key > p_after order by idempotency_key limit p_limit
    )
    select array_agg(n.home) filter (where n.home <> @schema@.here()),
           array_agg(n.idempotency_key) filter (where n.home <> @schema@.here()),
           array_agg(n.job_id) filter (where n.home <> @schema@.here()), max(n.idempotency_key)
      into strayed_keys.homes, strayed_keys.keys, strayed_keys.job_ids, strayed_keys.last_key
      from next as n;
end $$;

-- Takes in keys from their former home, by the map that says that this is their home; false where the queue has another
-- map by now. It is locked, and so not called closed before this is done: whoever carries by the next map finds these keys
-- here. One that is here already stays as it is. Locks: the map, shared.
create or replace function @schema@.take_in_keys(p_queue int, p_epoch int, p_keys text[], p_job_ids bigint[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not @schema@.lock_map(p_queue, p_epoch) then
        return false;
    end if;
    insert into @schema@.dedup (queue_id, idempotency_key, job_id, is_carried)
    select p_queue, k, j, @schema@.shard_of(j) <> @schema@.here() from unnest(p_keys, p_job_ids) as g(k, j) order by k
    on conflict do nothing;
    return true;
end $$;

-- Lets go of keys that were taken in at their home, by the map that says that this is not it; false where the queue has
-- another map by now, and the keys may belong here again. Locks: the map, shared.
create or replace function @schema@.let_go_keys(p_queue int, p_epoch int, p_keys text[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not @schema@.lock_map(p_queue, p_epoch) then
        return false;
    end if;
    delete from @schema@.dedup where queue_id = p_queue and idempotency_key = any (p_keys);
    return true;
end $$;

-- From now on no former home is asked, if the queue's map is still the one by which the keys were carried; whether it is.
-- Locks: the catalogue.
create or replace function @schema@.note_carried(p_queue int, p_epoch int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_version bigint := @schema@.next_version();
begin
    if not exists (select from @schema@.queue where id = p_queue and epoch = p_epoch) then
        return false;
    end if;
    update @schema@.queue_map set is_carried = true where queue_id = p_queue and epoch < p_epoch and not is_carried;
    update @schema@.queue set version = v_version where id = p_queue;
    return true;
end $$;

-- Of these jobs, those of which nothing is left on this shard: a key that another shard has for one can go.
create or replace function @schema@.jobs_forgotten(p_ids bigint[]) returns bigint[]
language sql stable
begin atomic
    select array(select j from unnest(p_ids) as j
                  where not exists (select from @schema@.job_stored where id = j) and not @schema@.exists_anywhere(j)
                    and not exists (select from @schema@.job_table
                                     where j / 1024 >= low and j / 1024 < high and keys_until > now()));
end;
