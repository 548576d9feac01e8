"""G1, G2, G3: sessions cut off by the server, and a server that takes no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import msgspec
import psycopg
import pytest
from tests.fault.crew import build
from tests.fault.own_server import OwnServer
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought

from penstock.errors import PartitionUnavailable, RequestTimeout

BACKENDS = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

# Each commit takes a tenth of a second, so that most sessions that are at work are found in one.
SLOW_COMMITS = """
do $$ begin
    execute format('alter database %I set commit_delay = 100000', current_database());
    execute format('alter database %I set commit_siblings = 0', current_database());
end $$
"""
COMMITTING = """
select pid from pg_stat_activity
 where datname = current_database() and application_name = 'penstock' and state = 'active'
"""
WAITS_FOR_STANDBY = """
select pid from pg_stat_activity
 where application_name = 'penstock' and wait_event = 'SyncRep' and query not like '%emit_message%'
"""


def test_g1_to_g6_nothing_is_lost_when_sessions_are_terminated(mixed_stage: Stage) -> None:
    stage = mixed_stage
    stage.worker()
    stage.worker()
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(url, autocommit=True)) for url in stage.urls]
        stack.enter_context(stage.producing_anything())
        eventually(stage.runs, "the workers are at work")
        left = times(10, 120)
        while left:
            connection = stage.random.choice(connections)
            victims = [pid for (pid,) in connection.execute(BACKENDS).fetchall()]
            if victims:
                connection.execute("select pg_terminate_backend(%s)", [stage.random.choice(victims)])
                brought("backend terminated")
                left -= 1
            stage.breathe()
    stage.verdict().require("a settle")


def test_g1_g3_g11_no_call_is_written_twice_when_its_session_is_ended_in_its_commit(
    database_url: str, make_stage: MakeStage
) -> None:
    """Single jobs, calls over several partitions, of 100 and more, with children, while every commit takes its time."""
    stage = make_stage(database_url, partitions=3, ordered=4)
    # Without one the producer would wait when a thousand jobs do.
    stage.worker()
    ended = 0
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute(SLOW_COMMITS)
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock'")
        with stage.producing_anything():
            while ended < times(40, 120):
                victims = [pid for (pid,) in connection.execute(COMMITTING).fetchall()]
                if victims:
                    connection.execute("select pg_terminate_backend(%s)", [stage.random.choice(victims)])
                    ended += 1
                    brought("backend terminated")
                stage.breathe()
    stage.verdict().require("a settle")


def test_g1_to_g6_nothing_is_lost_when_the_server_is_killed(killed_server_stage: Stage, own_server: OwnServer) -> None:
    stage = killed_server_stage
    stage.worker()
    stage.worker()
    with stage.producing_anything():
        for _ in range(times(2, 10)):
            before = stage.settles()
            eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
            stage.breathe()
            own_server.kill()
            brought("PostgreSQL killed")
            killed = stage.settles()
            eventually(lambda: stage.settles() > killed, "jobs are settled again")  # noqa: B023
    stage.verdict().require("a settle")


@pytest.mark.parametrize("count", [1, 120])
def test_g1_a_call_that_no_standby_has_is_not_acknowledged_because_it_was_found(
    own_server: OwnServer, make_stage: MakeStage, count: int
) -> None:
    """Ending a session that waits for a synchronous standby makes its commit visible: it is not safe by that."""
    stage = make_stage(own_server.url, request_timeout=3.0)
    stage.enqueue("plain", 120)
    with psycopg.connect(own_server.url, autocommit=True) as connection, ThreadPoolExecutor(1) as beside:
        connection.execute("alter system set synchronous_standby_names = 'nobody'")
        connection.execute("select pg_reload_conf()")
        eventually(lambda: connection.execute("show synchronous_standby_names").fetchone() == ("nobody",), "it is set")
        call = beside.submit(stage.enqueue, "plain", count)
        waiting = eventually(lambda: connection.execute(WAITS_FOR_STANDBY).fetchone(), "it waits for a standby")
        connection.execute("select pg_terminate_backend(%s)", waiting)
        error = call.exception()
        assert isinstance(error, RequestTimeout)
        assert error.outcome == "unknown"
        connection.execute("alter system reset synchronous_standby_names")
        connection.execute("select pg_reload_conf()")
    eventually(lambda: enqueued(stage), "calls are taken again")
    stage.verdict().require("a settle")


def test_g11_calls_are_refused_whole_while_connections_are_exhausted(
    own_server: OwnServer, make_stage: MakeStage
) -> None:
    stage = make_stage(own_server.url)
    patient, stage.app = stage.app, build(msgspec.structs.replace(stage.orders, request_timeout=1.0))
    patient.close()
    stage.enqueue("plain", 3)
    for _ in range(times(1, 2)):
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
        brought("disk full or connections exhausted")
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
