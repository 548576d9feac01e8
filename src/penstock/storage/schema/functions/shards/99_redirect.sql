-- What was sent to a shard to which nobody writes any more (@schema@.end_writes) goes another way.

-- Of jobs in another shard's outbox those that came here, where no more of them can come: nobody writes to this shard, and
-- all that came has left it, so that what goes another way from now on overtakes nothing. Null: that is not so.
create or replace function @schema@.arrived_for_good(p_from int, p_ids bigint[]) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when exists (select from pg_trigger
                              where tgname = 'no_writes_any_more' and tgrelid = '@schema@.arrival'::regclass)
                     and @schema@.is_vacant()
                then array(select outbox_id from @schema@.arrival where shard = p_from and outbox_id = any (p_ids)) end
$$;

-- Sends what is in the outbox by the maps of now, where these are open, in the order it was sent in; how many jobs go
-- another way than before. May be this shard, where its partition came back.
create or replace function @schema@.redirect(p_ids bigint[]) returns bigint
language sql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
    with sent as (
        update @schema@.outbox as o set shard = t.shard
          from (select g.id, @schema@.shard_by(m.partition_ids, j.key, p.number) as shard
                  from @schema@.outbox as g
                  join @schema@.partition as p on p.id = g.partition_id
                  join @schema@.queue as q on q.id = p.queue_id
                  join @schema@.queue_map as m on m.queue_id = q.id and m.epoch = q.epoch and m.state = 'open'
                  left join lateral (select key from @schema@.job_stored where id = g.job_id and q.is_owned limit 1) as j on true
                 where g.id = any (p_ids)) as t
         where o.id = t.id and o.shard <> t.shard
        returning o.id
    )
    select count(*) from sent
$$;
