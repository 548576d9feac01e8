-- name: parents_elsewhere
-- Parents on other shards whose final end was not heard yet, from one on; and whether it was heard that they may come back.
-- Index: dependency_elsewhere.
select distinct d.parent_id, e.job_id is not null
  from @schema@.dependency as d left join @schema@.parent_end as e on e.job_id = d.parent_id
 where d.is_elsewhere and d.parent_id > %(after)s and not coalesce(e.is_final, false)
 order by d.parent_id limit %(limit)s

-- name: ends_of_parents
-- Of these jobs of this shard those that have ended, whether they succeeded, and whether that is final: a dead letter may
-- come back, and so may what was cancelled for one. One that is gone did not succeed. And those that
-- were carried to another shard, and to which. In one snapshot: a job that moves from table to table is found in one of
-- them; also while its history is on its way out. Index: *_of_range, the primary keys.
select p.id, coalesce(p.outcome = 0, false), p.is_final, case when p.outcome is null or not p.is_final then nullif(p.shard, @schema@.here()) end
  from (select g.id, case when o.shard is null then coalesce(o.outcome, @schema@.outcome_apart(g.id)) else o.outcome end as outcome,
               o.is_final, o.shard
          from unnest(%(ids)s::bigint[]) as g(id)
         cross join lateral (
               select @schema@.outcome_of(g.id) as outcome, not @schema@.may_come_back(g.id) as is_final,
                      @schema@.whereabouts(g.id) as shard offset 0) as o) as p
 where p.outcome is not null or p.shard is distinct from @schema@.here()

-- name: await_parents
-- Notes that children on another shard wait for these jobs, so that their ends are kept. Index: the primary key.
insert into @schema@.awaited (parent_id, shard) select id, %(shard)s from unnest(%(ids)s::bigint[]) as g(id)
on conflict do nothing

-- name: check_parents
-- Whether jobs may be waited for from other shards: those that are not here, and where they went (null: nowhere). That
-- is noted at once, in the transaction that looks, which holds `finished`: whoever lets a slice of it go waits for this,
-- and then finds the note. Locks: the notes, in order.
with given as materialized (
    select parent_id, shard from unnest(%(parents)s::bigint[], %(shards)s::smallint[]) as g(parent_id, shard)
), noted as (
    insert into @schema@.awaited as a (parent_id, shard, checked_at)
    select parent_id, shard, now() from given where shard <> @schema@.here() order by parent_id, shard
    on conflict (parent_id, shard) do update set checked_at = greatest(a.checked_at, excluded.checked_at)
)
select p.id, p.shard
  from (select g.id, @schema@.whereabouts(g.id) as shard from (select distinct parent_id from given) as g(id)) as p
 where p.shard is distinct from @schema@.here() order by p.id

-- name: await_no_more
-- But where a call asked of late: its child may come yet.
delete from @schema@.awaited
 where parent_id = any (%(ids)s::bigint[]) and shard = %(shard)s
   and (checked_at is null or checked_at < now() - interval '1 hour')

-- name: parents_awaited
-- Parents that ended, or are gone, and that children on other shards waited for at some time.
select a.shard, array_agg(a.parent_id) from @schema@.awaited as a
 where (a.checked_at is null or a.checked_at < now() - interval '1 hour')
   and (@schema@.outcome_of(a.parent_id) is not null or not @schema@.exists_anywhere(a.parent_id)) group by a.shard

-- name: parents_not_heard_of
-- Those of these parents that a child here waits for and whose final end is not known here. Index: the primary keys.
select d.parent_id from @schema@.dependency as d
 where d.parent_id = any (%(ids)s::bigint[])
   and not exists (select from @schema@.parent_end as e where e.job_id = d.parent_id and e.is_final)

-- name: enter_parent_ends
-- How parents on other shards ended; a child here may go on by it. What is final stays, whatever is heard later by
-- whoever asked earlier.
insert into @schema@.parent_end as e (job_id, has_succeeded, is_final)
select g.id, g.has_succeeded, g.is_final
  from unnest(%(ids)s::bigint[], %(succeeded)s::boolean[], %(final)s::boolean[]) as g(id, has_succeeded, is_final) order by g.id
on conflict (job_id) do update set has_succeeded = excluded.has_succeeded, is_final = excluded.is_final where not e.is_final

-- name: forget_parents_that_wait_again
-- Parents on other shards that had failed and were retried since. Index: the primary key.
delete from @schema@.parent_end where job_id = any (%(ids)s::bigint[]) and not is_final

-- name: clean_parent_ends
-- Forgets the ends of parents that nobody here waits for. Index: the primary keys.
with gone as (
    delete from @schema@.parent_end as e
     where not exists (select from @schema@.dependency as d where d.parent_id = e.job_id) returning 1
)
select count(*) from gone
