-- name: queues_with_totals
-- The queues that have a total_limit or a total_rate, with the limit of each partition. The catalogue is small.
select id, running_limit from @schema@.queue where total_limit is not null or total_rate is not null order by id

-- name: take_permit_duty
-- See @schema@.take_permit_duty. Locks: the row of the duty.
select @schema@.take_permit_duty(%(queue)s, %(holder)s, %(seconds)s)

-- name: report_permits
-- See @schema@.report_permits. Index: ready_in_order; `lease` is read as a whole.
select partition_id, number, permits, running, waiting, waited_seconds, starts, as_of, is_current
  from @schema@.report_permits(%(queue)s)

-- name: tell_permits
-- See @schema@.tell_permits. Locks: the partition's row.
select number, permits, running, starts, as_of
  from @schema@.tell_permits(%(partition)s, %(number)s, %(permits)s, %(token_total)s, %(until)s)

-- name: note_permits
-- See @schema@.note_permits. Locks: the queue's ledger.
select partition_id, permits, number, held, changed_seconds, total_limit, token_total, starts, used, tokens_until,
       granted_seconds, room
  from @schema@.note_permits(
       %(queue)s, %(partitions)s::int[], %(numbers)s::bigint[], %(occupied)s::int[], %(starts)s::bigint[])

-- name: read_ledger
-- See @schema@.read_ledger. The ledger is small.
select partition_id, permits, number, held, changed_seconds, total_limit, token_total, starts, used, tokens_until,
       granted_seconds, room
  from @schema@.read_ledger(%(queue)s)

-- name: allot_permits
-- See @schema@.allot_permits. Locks: the queue's ledger.
select @schema@.allot_permits(%(queue)s, %(partitions)s::int[], %(numbers)s::bigint[], %(permits)s::int[])

-- name: grant_tokens
-- See @schema@.grant_tokens. Locks: the queue's ledger.
select @schema@.grant_tokens(
       %(queue)s, %(partitions)s::int[], %(numbers)s::bigint[], %(tokens)s::int[], %(as_of)s::timestamptz[])

-- name: next_total_token
-- In how many seconds the bucket of a queue's total_rate has a token.
select greatest(0, (1 - @schema@.tokens(q.total_rate, d.full_at, clock_timestamp())) / q.total_rate)
  from @schema@.permit_duty as d join @schema@.queue as q on q.id = d.queue_id where q.id = %(queue)s

-- name: unknown_permits
-- The shards whose partitions of a queue have not answered since its limit came, or since this shard leads.
select distinct p.shard from @schema@.permit_ledger as l join @schema@.partition as p on p.id = l.partition_id
 where l.queue_id = %(queue)s and l.held is null order by p.shard
