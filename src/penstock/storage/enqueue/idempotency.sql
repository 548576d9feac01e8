-- name: insert_idempotency_keys
-- Sorted by key, so that two calls with the same keys wait for each other in one order. Waits for the same key
-- in flight elsewhere. Returns the keys this call won.
insert into @schema@.dedup (queue_id, idempotency_key, job_id)
select q, k, id from unnest(%(queues)s::int[], %(keys)s::text[], %(ids)s::bigint[]) as g(q, k, id) order by q, k
on conflict do nothing returning job_id

-- name: take_unique
-- See @schema@.take_unique; sorted by key, too. The waiting jobs that have these texts, null where the new one has it now.
select q, k, @schema@.take_unique(q, k, id, false)
  from (select q, k, id from unnest(%(queues)s::int[], %(keys)s::text[], %(ids)s::bigint[]) as g(q, k, id) order by q, k) as given

-- name: read_idempotency_keys
-- The jobs that hold these keys.
select d.queue_id, d.idempotency_key, d.job_id
  from unnest(%(queues)s::int[], %(keys)s::text[]) as g(q, k)
  join @schema@.dedup as d on d.queue_id = g.q and d.idempotency_key = g.k
