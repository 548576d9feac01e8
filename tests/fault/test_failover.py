"""G14: the primary is killed under load and its standby promoted; producers and workers know both by one URL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.fault.conftest import MIXED
from tests.fault.replicas import Replicas, started_replicas
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought

from penstock import App
from penstock.storage import Connection, Database
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.sessions import confirm_replicated
from penstock.storage.schema import migrate
from penstock.storage.work.exchange import ClaimWish, exchange, settled_by
from penstock.storage.work.settle import Succeeded
from penstock.storage.work.workers import register

WRONG_RESULTS = """
    select j.id, j.args ->> 'label', f.result::text
      from penstock.finished_job as f join penstock.job_stored as j on j.id = f.job_id
     where f.outcome = 0 and f.result #>> '{}' is distinct from j.args ->> 'label'
"""


@pytest.fixture
def replicas() -> Iterator[Replicas]:
    with started_replicas() as replicas:
        with psycopg.connect(replicas.writable_url, autocommit=True) as connection:
            migrate(connection)
        yield replicas


def _fail_over(stage: Stage, replicas: Replicas) -> None:
    before = stage.settles()
    eventually(lambda: stage.settles() > before, "jobs are settled")
    stage.breathe()
    replicas.fail_over()
    brought("failover")
    promoted = stage.settles()
    eventually(lambda: stage.settles() > promoted, "jobs are settled on the promoted server")


def test_g14_nothing_is_lost_or_settled_twice_when_a_synchronous_standby_takes_over(
    replicas: Replicas, make_stage: MakeStage
) -> None:
    stage = make_stage(replicas.url, urls=[replicas.writable_url], **MIXED)
    replicas.join(is_synchronous=True)
    stage.worker()
    stage.worker()
    with stage.producing(), stage.producing_steps("ordered"), stage.producing_steps("limited"):
        for number in range(times(1, 10)):
            if number:
                replicas.join(is_synchronous=True)
            _fail_over(stage, replicas)
    stage.verdict().require("a settle")
    assert _wrong_results(replicas) == []


def test_g14_nothing_is_ended_with_another_jobs_result_when_an_asynchronous_standby_takes_over(
    replicas: Replicas, make_stage: MakeStage
) -> None:
    """The standby has not heard the last of the primary: numbers come again, and what was reported is forgotten."""
    stage = make_stage(replicas.url, urls=[replicas.writable_url], **MIXED)
    stage.worker()
    stage.worker()
    with stage.producing(), stage.producing_steps("ordered"), stage.producing_steps("limited"):
        for _ in range(times(1, 5)):
            replicas.join(is_synchronous=False)
            before = stage.settles()
            eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
            replicas.part()
            # A sequence is logged 32 numbers ahead: more than those have to be drawn for one to come again.
            lost = [job for _ in range(80) for job in stage.enqueue("plain")]
            eventually(lambda: {event.job for event in stage.runs()}.issuperset(lost), "all of these run")  # noqa: B023
            _fail_over(stage, replicas)
            eventually(lambda: set(stage.enqueue("plain")) & set(lost), "an id is given again")  # noqa: B023
    eventually(stage.is_drained, "every job that is left has ended")
    stage.end_workers()
    assert _wrong_results(replicas) == []
    places = stage.snapshot().places
    assert len({job for job, _ in places}) == len(places)


WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'penstock%'"


@pytest.mark.parametrize("jobs", [1, 150], ids=["small", "large"])
@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_g14_a_call_that_only_the_primary_has_is_not_acknowledged(replicas: Replicas, jobs: int, how: str) -> None:
    """Whoever is ended while it waits for the standby has committed, and everybody sees it, but no standby has it."""
    app = App(replicas.url, request_timeout=120.0)

    @app.queue("q").task
    def run(n: int) -> None: ...

    run.enqueue(n=0)
    replicas.join(is_synchronous=True)
    replicas.part()
    done: list[list[int]] = []
    caller = threading.Thread(target=lambda: done.append(run.enqueue_many([{"n": n} for n in range(jobs)])))
    caller.start()
    with psycopg.connect(replicas.url_of(replicas.primary), autocommit=True) as connection:
        (victim,) = eventually(lambda: connection.execute(WAITING).fetchone(), "the call waits for the standby")
        connection.execute(sql.SQL("select {}(%s)").format(sql.Identifier(how)), [victim])
        eventually(
            lambda: done or any(pid != victim for (pid,) in connection.execute(WAITING).fetchall()),
            "the call was found, and is made sure of",
        )
    assert not done, "acknowledged, and no standby has it"
    replicas.fail_over()
    caller.join()
    with psycopg.connect(replicas.writable_url) as connection:
        stored = {job for (job,) in connection.execute("select id from penstock.job").fetchall()}
    assert len(stored) == 1 + jobs
    assert stored.issuperset(done[0])
    app.close()


def test_g14_a_settle_that_only_the_primary_has_is_not_told(replicas: Replicas) -> None:
    app = App(replicas.url)

    @app.queue("q").task
    def run() -> None: ...

    job = run.enqueue()
    app.close()
    database = Database(replicas.url)
    connection = database.connect()
    entry = find_queue(connection, "q")
    worker = register(
        connection,
        name="w",
        host="here",
        pid=1,
        version="0",
        concurrency=1,
        lease_seconds=600.0,
        tasks=[(entry.id, "run")],
    )
    (lease,) = exchange(
        connection, worker, "w", [], [], ClaimWish(entry.partition_ids, entry.partition_ids, 1, 0)
    ).leases
    replicas.join(is_synchronous=True)
    replicas.part()
    done = Succeeded(lease.id, lease.token, lease.range, True, [job % 1024], [1], [1])
    told: list[object] = []

    def tell(act: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            with suppress(psycopg.OperationalError):
                told.append(act())

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    primary = replicas.url_of(replicas.primary)
    with closing(psycopg.connect(primary, autocommit=True)) as looking:
        settling = tell(lambda: exchange(connection, worker, "w", [done], [], None))
        (victim,) = eventually(lambda: looking.execute(WAITING).fetchone(), "the settle waits for the standby")
        looking.execute("select pg_terminate_backend(%s)", [victim])
        settling.join()
        with closing(psycopg.connect(primary, autocommit=True, application_name="penstock again")) as again:
            asking = tell(lambda: _found_for_sure(again, job))
            eventually(lambda: told or looking.execute(WAITING).fetchone(), "it was found, and is made sure of")
            assert not told, "told, and no standby has it"
            replicas.fail_over()
            asking.join()
    assert not told
    with database.connect() as promoted:
        assert settled_by(promoted, "w", [(job, 1)]) == set()
        assert exchange(promoted, worker, "w", [done], [], None).not_held == []
    database.close()


def _found_for_sure(connection: Connection, job: int) -> bool:
    """What a worker does after a lost answer, before it tells anybody of a settle."""
    is_found = bool(settled_by(connection, "w", [(job, 1)]))
    if is_found:
        confirm_replicated(connection)
    return is_found


def _wrong_results(replicas: Replicas) -> list[tuple[Any, ...]]:
    with psycopg.connect(replicas.writable_url) as connection:
        return connection.execute(WRONG_RESULTS).fetchall()
