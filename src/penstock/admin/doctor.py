"""A look at everything Penstock rests on: each check says what was found and, where it is wrong, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from penstock.deadline import within
from penstock.errors import InvalidInput, PenstockError, SchemaMismatch
from penstock.model.check import Check, checked
from penstock.policy.judgements import LONG_WAIT_SECONDS, NEARLY_FULL
from penstock.shards.health import CatalogueFacts, catalogue_facts, check_together
from penstock.shards.side_by_side import side_by_side
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import read_queues
from penstock.storage.catalogue.roles import kind_of_role
from penstock.storage.connection.error_meaning import ConnectionLost, entry_remedy
from penstock.storage.connection.sqlstate import remedy
from penstock.storage.inspect import health
from penstock.storage.repair.deleting import held_by_deleted
from penstock.storage.schema import check_schema, describe, read_state

__all__ = ["doctor"]

_LONG_TRANSACTION_SECONDS = 300.0
_MUCH_CLOCK_DIFFERENCE_SECONDS = 5.0
_MANY_DEAD_ROWS = 100_000
_FEW_RANGES_AHEAD = 16_384 * 1_024
_MANY_TABLES = 24
_MOST_NAMED = 100
_FEW = 20


def doctor(databases: Sequence[Database]) -> list[Check]:
    """Every check of every shard, in the order to mend them, then those of all together.

    A database that cannot be reached, or has no schema, ends its list.
    """
    with within(max(database.request_timeout for database in databases)):
        return _doctor(databases)


def _doctor(databases: Sequence[Database]) -> list[Check]:
    examined = side_by_side(_examine, databases)
    checks = [check for each, _ in examined for check in each]
    return checks + check_together([(each, facts) for each, (_, facts) in zip(databases, examined, strict=True)])


def _examine(database: Database) -> tuple[list[Check], CatalogueFacts | None]:
    checks: list[Check] = []
    facts = None
    try:
        with database.connect() as connection:
            checks += _server(database, connection)
            checks.append(_notifications(database))
            checks.append(_schema(connection))
            if checks[-1].ok:
                facts = catalogue_facts(connection)
                checks += _inside(connection, facts)
    except (PenstockError, *ConnectionLost) as error:
        causes = [each for each in (error, error.__cause__, error.__context__) if each is not None]
        told = [advice for each in causes if (advice := remedy(getattr(each, "sqlstate", None) or ""))]
        told += [advice for each in causes if (advice := entry_remedy(each))]
        reach = "see that it runs, that the URL is right and that it accepts connections from here"
        advice = told[0] if told else reach
        checks.append(Check("database", False, str(error).strip().splitlines()[0], advice))
    name = str(facts.number) if facts is not None else database.address
    return [replace(check, shard=name) for check in checks], facts


def _server(database: Database, connection: Connection) -> Iterator[Check]:
    here = database.clock.now()
    facts = health.server_facts(connection)
    is_new = facts.version_number >= 140_000
    yield checked("PostgreSQL version", is_new, facts.version, "upgrade to PostgreSQL 14 or later")
    for name, value in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        yield checked(name, value == "on", value, f"set {name} = on: a crash can lose acknowledged jobs or all data")
    is_safe = facts.synchronous_commit not in ("off", "local")
    yield checked(
        "synchronous_commit",
        is_safe,
        facts.synchronous_commit,
        "set synchronous_commit = on: a crash loses the jobs acknowledged in its last moments",
    )
    full = health.lack_of_room(connection)
    nothing = "nothing can be enqueued, run or changed there"
    advice = f"{nothing}: is it a standby, or default_transaction_read_only on?"
    if full is not None:
        advice = f"{nothing}: make room on the server's disk"
    takes_writes = facts.takes_writes and full is None
    yield checked("writes", takes_writes, "taken" if takes_writes else f"refused{f' ({full})' if full else ''}", advice)
    seconds = abs((facts.now - here).total_seconds())
    yield checked(
        "clock",
        seconds <= _MUCH_CLOCK_DIFFERENCE_SECONDS,
        f"{seconds:.1f} s between here and the server",
        "set the clocks by NTP: run_at given as a time of day here means another one there",
    )
    advice = "alter database … set jit = off: compiling statements takes longer than running them, and behind a pooler"
    yield checked("jit", not facts.jit, "on" if facts.jit else "off", f"{advice} sessions cannot switch it off")
    pooled = "a transaction pooler" if database.is_pooled else "a direct connection"
    yield Check("connection", True, pooled, "workers poll: they hear no notifications" if database.is_pooled else "")


def _notifications(database: Database) -> Check:
    seconds = health.notification_seconds(database)
    found = "none came back" if seconds is None else f"{seconds * 1000:.1f} ms round trip"
    advice = "workers poll instead, which takes longer to notice a job; connect directly rather than through a pooler"
    return checked("notifications", seconds is not None, found, advice)


def _schema(connection: Connection) -> Check:
    try:
        check_schema(connection)
    except SchemaMismatch as error:
        return Check("schema", False, str(error), "run `penstock migrate` with the newest penstock you use")
    except InvalidInput as error:
        # Of another encoding: it says itself what to do.
        found, _, advice = error.problem.partition(": ")
        return Check("schema", False, found, advice)
    except PenstockError as error:
        return Check("schema", False, str(error), "connect as its owner, or as a worker or a reader")
    return Check("schema", True, describe(read_state(connection)))


def _inside(connection: Connection, facts: CatalogueFacts) -> list[Check]:
    if not facts.is_drained:
        return [check(connection) for check in (*_OF_ANY, *_OF_ONE_IN_USE)]
    advice = (
        "take its URL out of your programs; what ended there, and its part of the figures, is read while it is given"
    )
    return [*(check(connection) for check in _OF_ANY), Check("state", True, "drained", advice)]


def _role(connection: Connection) -> Check:
    role, kind = kind_of_role(connection)
    return Check("role", True, f"{role} ({kind or 'no kind that penstock grants'})")


def _transactions(connection: Connection) -> Check:
    seconds, pid, hidden = health.oldest_transaction(connection)
    found = f"{seconds:.0f} s" + (f" (process {pid})" if pid else "")
    grant = ""
    if hidden:
        # They may hold one open for days, or be idle: nothing is known to be wrong.
        found += f"; {hidden} session{'s' * (hidden != 1)} of other roles cannot be seen"
        grant = "grant pg_read_all_stats to this role: without it transactions of other roles are not seen"
    if seconds < _LONG_TRANSACTION_SECONDS:
        return Check("oldest transaction", True, found, grant)
    advice = f"end it, or select pg_terminate_backend({pid}): while it is open, dead rows pile up and old tables stay"
    return Check("oldest transaction", False, found, f"{advice}; {grant}" if grant else advice)


def _dead_rows(connection: Connection) -> Check:
    rows = health.dead_tuples(connection)
    found = ", ".join(f"{name} {dead}" for name, (dead, _) in rows.items())
    is_well = all(dead < _MANY_DEAD_ROWS + live for dead, live in rows.values())
    return checked("dead rows", is_well, found, "see that autovacuum is on and that no transaction stays open for long")


def _tables(connection: Connection) -> Check:
    ahead = health.tables_ahead(connection)
    is_well = ahead.ranges > _FEW_RANGES_AHEAD and ahead.slices > 0 and ahead.attached < _MANY_TABLES
    found = f"room for {ahead.ranges // 1024} more calls, {ahead.attached} tables of jobs, {ahead.slices} slices ahead"
    return checked("tables ahead", is_well, found, "run a worker: its upkeep makes new tables and drops old ones")


def _archive(connection: Connection) -> Check:
    last = health.archive_facts(connection)
    if last.began is None:
        return Check("archive", True, "none was run")
    where = f"to {last.location}, begun {last.began}"
    if last.is_running or last.has_ended:
        return Check("archive", True, f"{'one runs' if last.is_running else 'the last one ended'}: {where}")
    held = f"; slices {', '.join(map(str, last.taken))} wait for it" if last.taken else ""
    return Check(
        "archive",
        False,
        f"the last one was killed or failed: {where}{held}",
        f"run it again: penstock archive {last.location}; until then no job of a slice that waits is found by its id",
    )


_START_ONE = "start one: penstock work MODULE:APP"


def _workers(connection: Connection) -> Check:
    alive, entered = health.workers_alive(connection)
    if not entered:
        # No illness: before the first deployment, say. One that was there and is silent is.
        return Check("workers", True, "none is alive, and none has fallen silent")
    silent = "the others were killed, or do not reach the database: see their logs; upkeep forgets them soon"
    advice = silent if alive else _START_ONE
    return checked("workers", alive == entered, f"{alive} alive of {entered}", advice)


def _upkeep(connection: Connection) -> Check:
    failing = health.troubles(connection)
    found = "; ".join(f"{each.duty} has failed for {each.seconds:.0f} s: {each.error}" for each in failing)
    return checked(
        "upkeep",
        not failing,
        found or "no duty fails again and again",
        "mend what the error names; workers go on trying, and what these duties move waits meanwhile",
    )


def _rules(connection: Connection) -> Check:
    refused = [entry for entry in read_queues(connection) if entry.is_refused]
    names = (f"{each.name} ({', '.join(each.rules.unknown_in(each.stored_rules))})" for each in refused)
    return checked(
        "rules of queues",
        not refused,
        f"not known to this program: {', '.join(names)}" if refused else "this program knows all that it must",
        "upgrade this program, or take these options away with the newer one: until then this one cannot serve or"
        " change those queues",
    )


def _set_aside(connection: Connection) -> Check:
    aside = health.jobs_set_aside(connection)
    count, ids = sum(each.count for each in aside), sorted(id_ for each in aside for id_ in each.jobs)[:_MOST_NAMED]
    named = ", ".join(map(str, ids)) + (", ..." if count > len(ids) else "")
    found = "no job had to be set aside"
    if aside:
        first = min(aside, key=lambda each: each.jobs[0])
        found = f"{count} jobs: {named}; the first: {first.reason}"
    advice = "bring back what is missing and retry them (penstock retry ID), or cancel them (penstock cancel ID)"
    return checked("jobs set aside", not count, found, advice)


def _deleted(connection: Connection) -> Check:
    count = sum(each.opened + each.scheduled + each.blocked + each.dead for each in held_by_deleted(connection))
    found = f"{count} jobs of them have not ended" if count else "no job is in one"
    return checked("deleted queues", not count, found, f"the upkeep of any worker ends them; {_START_ONE}")


def _tasks(connection: Connection) -> Check:
    unknown = health.jobs_nobody_knows(connection)
    found = ", ".join(f"{queue}/{task}" for queue, task in unknown) or "every waiting task has a worker"
    advice = "start a worker whose app defines them, or cancel their jobs: penstock cancel --queue QUEUE --task TASK"
    return checked("tasks", not unknown, found, advice)


def _backlogs(connection: Connection) -> Check:
    long = health.backlogs(connection, LONG_WAIT_SECONDS)
    found = ", ".join(
        f"{name}: {waiting} jobs, the oldest ready for {seconds:.0f} s" for name, seconds, waiting in long
    )
    advice = "start more workers, or see what holds the first job: penstock jobs --queue QUEUE, penstock explain ID"
    return checked("backlog", not long, found or "no job has been ready for a quarter of an hour", advice)


def _lengths(connection: Connection) -> Check:
    full = health.nearly_full(connection, NEARLY_FULL)
    found = ", ".join(f"{name}: {waiting} of {most}" for name, waiting, most in full)
    advice = "start more workers, or raise max_length: beyond it an enqueue is refused with QueueFull"
    return checked("max_length", not full, found or "no queue is nearly full", advice)


def _halted(connection: Connection) -> Check:
    halted = health.halted_keys(connection)
    found = ", ".join(f"{queue}: {count} keys, the first for {seconds:.0f} s" for queue, count, seconds in halted)
    advice = (
        "mend the dead letters and retry them, or let the keys go on: penstock blocked-keys QUEUE, penstock release"
    )
    return checked("halted keys", not halted, found or "no key waits for a person", advice)


def _stuck(connection: Connection) -> Check:
    stuck = health.stuck_jobs(connection, _FEW)
    found = ", ".join(
        f"{each.task} {each.job_id} for {each.seconds:.0f} s" + ("" if each.has_timeout else " without a timeout")
        for each in stuck
    )
    advice = (
        "look at its worker (penstock job ID), restart that, and give the task a timeout that is longer than it needs"
    )
    return checked("stuck jobs", not stuck, found or "no job runs for much longer than it may", advice)


def _timeouts(connection: Connection) -> Check:
    untimed = health.tasks_without_timeout(connection)
    if not untimed and not health.workers_alive(connection)[0]:
        return Check("timeouts", True, "no worker is alive that could tell of its tasks")
    if not untimed:
        return Check("timeouts", True, "every task of a live worker has one")
    # Never wrong: many handlers need no timeout. It is shown for the day on which one hangs.
    advice = "a handler that hangs keeps its slot, and its worker does not notice: give tasks that wait for others one"
    return Check("timeouts", True, "none for " + ", ".join(f"{queue}/{task}" for queue, task in untimed), advice)


def _owners(connection: Connection) -> Check:
    divided = health.divided_tasks(connection)
    found = ", ".join(f"{each.queue}: worker {each.worker} does not know {each.task!r}" for each in divided)
    return checked(
        "tasks of owners",
        not divided,
        found or "no workers divide the tasks of a queue with an owner",
        "let every worker of such a queue know all its tasks, or give the tasks queues of their own: "
        "a key waits while its partition's owner does not know its next task",
    )


_OF_ANY: tuple[Callable[[Connection], Check], ...] = (_role, _transactions, _dead_rows, _archive)
_OF_ONE_IN_USE: tuple[Callable[[Connection], Check], ...] = (
    *(_tables, _workers, _upkeep, _rules),
    *(_tasks, _timeouts, _owners, _set_aside, _deleted),
    *(_backlogs, _lengths, _halted, _stuck),
)
