-- name: move_partitions
-- See @schema@.move_partitions. Locks: the catalogue, the row of the queue's map, the queue's.
select @schema@.move_partitions(%(name)s, %(numbers)s::int[], %(shards)s::int[])

-- name: open_map
-- See @schema@.open_map. Locks: the catalogue, the queue's row.
select @schema@.open_map(%(queue)s, %(epoch)s)

-- name: undo_map
-- See @schema@.undo_map. Locks: the catalogue, maps' rows, the queue's.
select @schema@.undo_map(%(queue)s, %(epoch)s)

-- name: unopened_maps
-- The maps by which nobody may write yet, for how many seconds, and the shards that have partitions of the one before.
-- A row a queue: the catalogue is small.
select q.id, q.name, q.epoch, extract(epoch from now() - n.set_at)::double precision,
       array(select distinct p.shard from @schema@.queue_map as m join @schema@.partition as p on p.id = any (m.partition_ids)
              where m.queue_id = q.id and m.epoch = q.epoch - 1 order by 1)
  from @schema@.queue as q join @schema@.queue_map as n on n.queue_id = q.id and n.epoch = q.epoch
 where n.state = 'announced'

-- name: has_opened
-- Whether everybody may write by a map, or null where nobody ever will.
select case when m.state <> 'withdrawn' then m.state <> 'announced' end
  from @schema@.queue as q join @schema@.queue_map as m on m.queue_id = q.id
 where q.name = %(name)s and m.epoch = %(epoch)s

-- name: read_epochs
-- The newest map that this shard knows of each of these queues.
select id, epoch from @schema@.queue where id = any (%(queues)s::int[])

-- name: report_number
-- A number for what is told next; see the sequence.
select nextval('@schema@.report_number')

-- name: forget_guests
-- See @schema@.forget_guests. Index: *_of_range.
select @schema@.forget_guests() where exists (select from @schema@.map_guest)

-- name: rest_of_maps
-- What is left here of closed maps, where other shards may wait for it. See @schema@.rest_of_map: one look.
select m.queue_id, m.epoch, r.open_ids, r.held_keys
  from @schema@.queue_map as m join @schema@.map_here as h on h.queue_id = m.queue_id and h.epoch = m.epoch
 cross join lateral @schema@.rest_of_map(m.queue_id, m.epoch) as r
 where m.state = 'replaced' and h.state = 'closed'
   and exists (select from @schema@.partition as p where p.queue_id = m.queue_id and p.shard <> @schema@.here())

-- name: note_rest
-- Takes over what another shard told of the rest of a map, unless it is drained or not known here yet, or something newer was told;
-- wakes who may wait for it.
with noted as (
    insert into @schema@.map_elsewhere as e (queue_id, epoch, shard, open_ids, held_keys, number)
    select m.queue_id, m.epoch, %(shard)s, %(open_ids)s::int[], %(held_keys)s::bytea[], %(number)s
      from @schema@.queue_map as m where m.queue_id = %(queue)s and m.epoch = %(epoch)s and m.state <> 'drained'
    on conflict (queue_id, epoch, shard) do update
       set open_ids = excluded.open_ids, held_keys = excluded.held_keys, number = excluded.number
     where e.number < excluded.number
    returning queue_id
)
select @schema@.wake(n.queue_id) from noted as n
 where not exists (select from @schema@.map_elsewhere as b
                    where b.queue_id = %(queue)s and b.epoch = %(epoch)s and b.shard = %(shard)s
                      and b.open_ids = %(open_ids)s::int[] and b.held_keys = %(held_keys)s::bytea[])

-- name: shut_places
-- See @schema@.shut_places. A row a move: the catalogue is small.
select partition_id, left_at from @schema@.shut_places()

-- name: note_shut
-- See @schema@.note_shut: how many of these places on other shards were not known to be shut.
select count(*) filter (where @schema@.note_shut(g.id, g.left_at))
  from unnest(%(partitions)s::int[], %(versions)s::bigint[]) as g(id, left_at)
  join @schema@.partition as p on p.id = g.id and p.shard <> @schema@.here()
