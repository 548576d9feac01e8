-- name: shard_facts
-- Whether a shard takes writes, the partitions that queues use on it, jobs ready and under a lease.
select current_setting('default_transaction_read_only') = 'on' or pg_is_in_recovery(),
       (select count(*) from @schema@.partition where state = 'current' and shard = @schema@.here()),
       (select coalesce(sum(opened), 0)::bigint from @schema@.depth) - l.n, l.n
  from (select coalesce(sum(@schema@.members_count(low, high, members)), 0)::bigint as n from @schema@.lease) as l
