-- Workers, what became of their turns and of calls, and the duties that fail.

create table @schema@.worker (
    -- Drawn at random by the worker itself: a promoted standby or a restored backup would give a counted one again.
    id            bigint primary key,
    -- The same on every shard on which one worker is registered.
    instance      uuid not null default gen_random_uuid(),
    name          text not null,
    host          text not null,
    pid           int not null,
    version       text not null,
    concurrency   int not null,
    lease_seconds double precision not null,
    -- The server process it claims and settles with; it is ended with the worker, and what it locked is free. Null where
    -- another worker acts for this one and for others: then that one has it.
    session_pid   int,
    -- Somebody wants it to end gently: it hears of that with its next renewal.
    is_asked_to_stop boolean not null default false,
    -- How many jobs ended there in the minute before the last renewal, and how many of these raised. Null: it does not count.
    ended_lately  int,
    failed_lately int,
    started_at    timestamptz not null default now(),
    renewed_at    timestamptz not null default now()
) with (fillfactor = 50);

create table @schema@.worker_task (
    worker_id bigint not null references @schema@.worker on delete cascade,
    queue_id  int not null references @schema@.queue,
    task      text not null,
    -- Infinity: it has none, and a handler that hangs keeps its slot for ever. Null: not known.
    timeout_seconds double precision,
    -- How many jobs its handler is given together, and for how long the first waits for the others; null: each alone.
    batch              int,
    batch_wait_seconds double precision,
    primary key (worker_id, queue_id, task)
);

-- Who wants to be woken for a queue: a producer notifies only where there is a row.
create table @schema@.sleeper (
    queue_id  int not null references @schema@.queue,
    worker_id bigint not null references @schema@.worker on delete cascade,
    primary key (queue_id, worker_id)
);

-- What became of calls that were sent through a transaction pooler, which hides their sessions; and of turns that were, or
-- that another worker sent over a session that serves several.

-- A call writes its token with its jobs, and who lost its answer writes it too: who comes second meets the first. If that
-- is the call, nothing of it is written, however late it comes; if it is who looks, the call was.
create table @schema@.receipt (
    token      bigint primary key,
    -- Of the call's jobs; null: it was looked for before it came.
    first_id   bigint,
    kept_until timestamptz not null
);

-- The number that a worker's turns bear; it changes whenever the answer to one was lost. A turn locks the row while it
-- lasts, and fails where the number is another by then.
create table @schema@.turn (
    worker_id bigint primary key,
    number    bigint not null
) with (fillfactor = 50);

-- Duties of upkeep that fail in the same way again and again, as of when that was noted last.
create table @schema@.trouble (
    duty     text primary key,
    error    text not null,
    since    timestamptz not null,
    noted_at timestamptz not null default clock_timestamp()
);
