-- Who may come in, and who did what.

-- Access tokens, each by the digest of its secret. The same on every shard: rows are added and revoked, and nothing else,
-- so that what several shards have can be put together in any order. None is ever removed: whether there ever was one
-- counts.
create table @schema@.access_token (
    digest     bytea primary key constraint digest_is_sha_256 check (octet_length(digest) = 32),
    name       text not null,
    role       text not null constraint role_of_token_is_known check (role in ('read', 'produce', 'work', 'admin')),
    queues     text[],
    tenant     text,
    hides_args boolean not null default false,
    created_at timestamptz not null default now(),
    created_by text not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint a_tenant_only_reads_or_produces check (tenant is null or role in ('read', 'produce'))
);

comment on column @schema@.access_token.queues is 'Null: all of them.';

-- Acts of people and programs: each is written before it is done, and what came of it after. Only functions of the
-- owner's write here (functions/87_audit.sql), so that nobody else changes or removes what stands here.
create table @schema@.audit (
    -- Microseconds since 1970 × 1,024 + the number of the shard: in the order of time over all shards.
    id            bigint primary key,
    -- Drawn by the program for the call, so that a write which is repeated is done once.
    call          uuid not null constraint a_call_is_written_once unique,
    at            timestamptz not null,
    actor         text not null,
    source        text not null constraint source_of_act_is_known check (source in ('python', 'cli', 'http')),
    address       text,
    database_role text not null,
    act           text not null,
    target        text,
    detail        jsonb not null,
    outcome       text constraint outcome_of_act_is_known check (outcome in ('done', 'not done', 'unknown')),
    count         bigint
);

create index audit_of_actor on @schema@.audit (actor, id);
create index audit_of_target on @schema@.audit (target, id);

comment on column @schema@.audit.outcome is 'Null: the act is under way, or its program died.';
