-- What was granted to which database role, for migrations to come (functions/95_roles.sql). Only the owner writes here.
create table @schema@.grantee (
    role text primary key,
    kind text not null constraint kind_of_role_is_known check (kind in ('worker', 'producer', 'reader'))
);
