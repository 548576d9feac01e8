-- name: grant_to
-- Locks: migrations and other grants, prune and whoever makes tables, for the transaction.
select @schema@.grant_to(%(role)s, %(kind)s)

-- name: kind_of_role
-- What the session's role may do here, by its rights, however it came by them.
select current_user::text,
       case when pg_has_role(c.relowner, 'usage') then 'owner'
            when has_table_privilege('@schema@.job', 'insert') then 'worker'
            when has_table_privilege('@schema@.job', 'select') then 'reader' end
  from pg_class as c where c.oid = '@schema@.job'::regclass

-- name: owns_tables
-- Whether this role may change the schema.
select pg_has_role(relowner, 'usage') from pg_class where oid = '@schema@.job'::regclass
