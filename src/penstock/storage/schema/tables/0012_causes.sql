-- Causes of failures: of a queue and a task, the shape of the errors that attempts ended with (@schema@.error_shape).

-- The causes that dead letters here have, and those of the attempts of the last day. The id is made of the rest, and so the
-- same on every shard.
create table @schema@.cause (
    id        bigint primary key,
    queue_id  int not null,
    task      text not null,
    shape     text not null,
    dead      bigint not null default 0,
    failed_at timestamptz not null
) with (fillfactor = 50);

create index cause_by_dead on @schema@.cause (dead) where dead > 0;
create index cause_of_queue_by_dead on @schema@.cause (queue_id, dead) where dead > 0;
create index cause_without_dead on @schema@.cause (failed_at) where dead = 0;

comment on column @schema@.cause.dead is 'How many dead letters have it, but for what the tally holds.';
comment on column @schema@.cause.failed_at is 'When it was noted last that an attempt failed of it.';

-- What transactions say of causes: one row for each cause of what failed, folded by upkeep. Who takes dead letters away
-- need not say what the cause is.
create table @schema@.cause_tally (
    cause    bigint not null,
    queue_id int,
    at       timestamptz not null default now(),
    failed   int not null default 0,
    dead     int not null default 0,
    task     text,
    shape    text
);

-- How many attempts of a queue failed of a cause in five minutes; kept for a day. The first causes of a queue's five minutes
-- have a row each; what failed of others is counted together, with 0 as the cause.
create table @schema@.cause_period (
    queue_id int not null,
    began_at timestamptz not null,
    cause    bigint not null,
    failed   bigint not null,
    primary key (queue_id, began_at, cause)
);

create index cause_period_of_cause on @schema@.cause_period (cause, began_at);
create index cause_period_by_time on @schema@.cause_period (began_at);
