-- name: why_not_started
-- What an owner goes by about one ready job: who owns its partition, its order and map, what runs of its key or holds it,
-- and a job of its key that stands before it (looked for in a hundred rows). Index: ready_of_range, ready_in_order.
select q.id, p.id, q.rules::text, q.weights::text, q.is_paused, w.name, r.epoch, j.key,
       array(select l.range * 1024 + m from @schema@.lease as l, unnest(@schema@.positions(l.low, l.high, l.members)) as m,
                    lateral (select key from @schema@.job_stored where id = l.range * 1024 + m limit 1) as o
              where l.partition_id = p.id and o.key = j.key order by 1 limit 10),
       (select json_build_object('job', (s.range * 1024 + m)::text, 'due_at', s.due_at)
          from @schema@.scheduled as s, unnest(@schema@.positions(s.low, s.high, s.members)) as m,
               lateral (select key from @schema@.job_stored where id = s.range * 1024 + m limit 1) as o
         where s.partition_id = p.id and s.pos is not null and o.key = j.key order by s.pos limit 1),
       (select h.job_id from @schema@.halted as h where h.queue_id = q.id and h.key = j.key),
       exists (select from @schema@.halted as h join @schema@.dead as d on d.job_id = h.job_id
                where h.queue_id = q.id and h.key = j.key),
       (select o.id from (
            select range, low, high, members, pos from @schema@.ready
             where partition_id = p.id and not is_parked and priority = r.priority and pos <= r.pos order by pos limit 100) as a,
               unnest(@schema@.positions(a.low, a.high, a.members)) as m,
               lateral (select id, key from @schema@.job_stored where id = a.range * 1024 + m limit 1) as o
         where o.key = j.key and (a.pos, o.id) < (r.pos, j.id) order by a.pos, o.id limit 1),
       array(select t.task from @schema@.worker_task as t where t.worker_id = p.owner_id and t.queue_id = q.id)
  from @schema@.ready as r
  join @schema@.partition as p on p.id = r.partition_id
  join @schema@.queue as q on q.id = p.queue_id and q.is_owned
 cross join lateral (select id, key from @schema@.job_stored where id = %(id)s limit 1) as j
  left join @schema@.worker as w on w.id = p.owner_id
 where r.range = %(id)s / 1024 and @schema@.has_member(r.low, r.high, r.members, (%(id)s %% 1024)::int)
