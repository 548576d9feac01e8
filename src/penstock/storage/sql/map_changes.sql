-- name: move_partitions
-- See penstock.move_partitions. Locks: the catalogue, the row of the queue's map, the queue's.
select penstock.move_partitions(%(name)s, %(numbers)s::int[], %(shards)s::int[])

-- name: open_map
-- See penstock.open_map. Locks: the catalogue, the queue's row.
select penstock.open_map(%(queue)s, %(epoch)s)

-- name: undo_map
-- See penstock.undo_map. Locks: the catalogue, maps' rows, the queue's.
select penstock.undo_map(%(queue)s, %(epoch)s)

-- name: unopened_maps
-- The maps by which nobody may write yet, for how many seconds, and the shards that have partitions of the one before.
-- A row a queue: the catalogue is small.
select q.id, q.name, q.epoch, extract(epoch from now() - n.set_at)::double precision,
       array(select distinct p.shard from penstock.queue_map as m join penstock.partition as p on p.id = any (m.partition_ids)
              where m.queue_id = q.id and m.epoch = q.epoch - 1 order by 1)
  from penstock.queue as q join penstock.queue_map as n on n.queue_id = q.id and n.epoch = q.epoch
 where not q.is_open

-- name: has_opened
-- Whether everybody may write by a map, or null where nobody ever will.
select case when m.opened_at is not null then true when q.epoch = m.epoch then false end
  from penstock.queue as q join penstock.queue_map as m on m.queue_id = q.id
 where q.name = %(name)s and m.epoch = %(epoch)s

-- name: read_epochs
select id, epoch from penstock.queue where id = any (%(queues)s::int[])

-- name: report_number
select nextval('penstock.report_number')

-- name: forget_guests
-- See penstock.forget_guests. Index: *_of_range.
select penstock.forget_guests() where exists (select from penstock.map_guest)

-- name: left_of_maps
-- What is left here of closed maps, where other shards may wait for it. See penstock.left_of_map: one look.
select m.queue_id, m.epoch, l.open_ids, l.held_keys
  from penstock.queue_map as m join penstock.queue as q on q.id = m.queue_id and q.epoch > m.epoch
 cross join lateral penstock.left_of_map(m.queue_id, m.epoch) as l
 where m.is_closed and not m.is_drained
   and exists (select from penstock.partition as p where p.queue_id = m.queue_id and p.shard <> penstock.here())

-- name: note_left
-- Takes over what another shard told of a map, unless it is drained or not known here yet, or something newer was told;
-- wakes who may wait for it.
with noted as (
    insert into penstock.map_elsewhere as e (queue_id, epoch, shard, open_ids, held_keys, number)
    select m.queue_id, m.epoch, %(shard)s, %(open_ids)s::int[], %(held_keys)s::bytea[], %(number)s
      from penstock.queue_map as m where m.queue_id = %(queue)s and m.epoch = %(epoch)s and not m.is_drained
    on conflict (queue_id, epoch, shard) do update
       set open_ids = excluded.open_ids, held_keys = excluded.held_keys, number = excluded.number
     where e.number < excluded.number
    returning queue_id
)
select penstock.wake(n.queue_id) from noted as n
 where not exists (select from penstock.map_elsewhere as b
                    where b.queue_id = %(queue)s and b.epoch = %(epoch)s and b.shard = %(shard)s
                      and b.open_ids = %(open_ids)s::int[] and b.held_keys = %(held_keys)s::bytea[])

-- name: shut_places
-- See penstock.shut_places. A row a move: the catalogue is small.
select partition_id, left_at from penstock.shut_places()

-- name: note_shut
-- See penstock.note_shut: how many of these places on other shards were not known to be shut.
select count(*) filter (where penstock.note_shut(g.id, g.left_at))
  from unnest(%(partitions)s::int[], %(versions)s::bigint[]) as g(id, left_at)
  join penstock.partition as p on p.id = g.id and p.shard <> penstock.here()
