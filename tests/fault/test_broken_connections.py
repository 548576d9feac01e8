"""G1, G2, G3: sessions cut off by the server, and a server that takes no more."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import msgspec
import psycopg
import pytest
from tests.fault.crew import build
from tests.fault.stage import MakeStage, OwnServer, Stage, eventually, times

from penstock.errors import PartitionUnavailable, RequestTimeout

BACKENDS = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


def test_g1_g2_g3_nothing_is_lost_when_sessions_are_terminated(stage: Stage) -> None:
    stage.worker(work_seconds=0.005)
    stage.worker(work_seconds=0.005)
    cut = 0
    with stage.producing(), psycopg.connect(stage.url, autocommit=True) as connection:
        eventually(stage.runs, "the workers are at work")
        while cut < times(20, 1000):
            victims = [pid for (pid,) in connection.execute(BACKENDS).fetchall()]
            if victims:
                connection.execute("select pg_terminate_backend(%s)", [stage.random.choice(victims)])
                cut += 1
            stage.breathe()
    stage.verdict().require("a settle")


def test_g1_g2_g3_nothing_is_lost_when_the_server_is_killed(own_server: OwnServer, make_stage: MakeStage) -> None:
    stage = make_stage(own_server.url)
    stage.worker(work_seconds=0.005)
    stage.worker(work_seconds=0.005)
    for _ in range(times(3, 100)):
        with stage.producing():
            before = stage.settles()
            eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
            own_server.kill()
            killed = stage.settles()
            eventually(lambda: stage.settles() > killed, "jobs are settled again")  # noqa: B023
    stage.verdict().require("a settle")


def test_g11_calls_are_refused_whole_while_connections_are_exhausted(
    own_server: OwnServer, make_stage: MakeStage
) -> None:
    stage = make_stage(own_server.url)
    patient, stage.app = stage.app, build(msgspec.structs.replace(stage.orders, request_timeout=1.0))
    patient.close()
    stage.enqueue("plain", 3)
    for _ in range(times(1, 10)):
        with ExitStack() as stack:
            keeper = stack.enter_context(psycopg.connect(own_server.url, autocommit=True))
            exhaust(stack, own_server.url)
            keeper.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock'")
            exhaust(stack, own_server.url)
            worker = stage.worker()
            enqueued(stage)  # Sent on a session that had ended: nobody can know whether it arrived.
            with pytest.raises((RequestTimeout, PartitionUnavailable)) as refused:
                stage.enqueue("plain", 3)
            assert getattr(refused.value, "outcome", "not written") == "not written"
            assert worker.poll() is None
        eventually(lambda: enqueued(stage), "calls are taken again")
        # The worker that began without a connection has found one, and leaves before the next round takes them all.
        eventually(lambda: stage.snapshot().is_drained, "everything was done")
        stage.end_workers()
    stage.verdict().require("a settle")


def enqueued(stage: Stage) -> list[int]:
    """The ids of a call, or nothing where it was refused."""
    try:
        return stage.enqueue("plain", 3)
    except (RequestTimeout, PartitionUnavailable):
        return []


def exhaust(stack: ExitStack, url: str) -> None:
    """Take every connection the server has to give."""
    with suppress(psycopg.OperationalError):
        while True:
            stack.enter_context(psycopg.connect(url))
