-- name: begin_audit
-- See @schema@.begin_audit.
select @schema@.begin_audit(
    %(call)s::uuid, %(actor)s, %(source)s, %(address)s, %(act)s, %(target)s, %(detail)s::jsonb)

-- name: end_audit
-- See @schema@.end_audit. Locks: the entry.
select @schema@.end_audit(%(id)s, %(outcome)s, %(count)s, %(detail)s::jsonb)

-- name: read_audit
-- Entries, the newest first, down to an id. Index: the primary key, audit_of_actor or audit_of_target.
select id, at, actor, source, address, database_role, act, target, count, detail, outcome
  from @schema@.audit
 where (%(before)s::bigint is null or id < %(before)s::bigint) and (%(actor)s::text is null or actor = %(actor)s::text)
   and (%(act)s::text is null or act = %(act)s::text) and (%(target)s::text is null or target = %(target)s::text)
   and (%(lowest)s::bigint is null or id >= %(lowest)s::bigint)
 order by id desc limit %(limit)s

-- name: forget_audit
-- Removes some of the entries whose time has come. See @schema@.forget_audit.
select @schema@.forget_audit(%(days)s::double precision, %(limit)s)
