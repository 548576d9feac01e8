"""Whoever waits for an answer that will not come is told, whatever kind of connection it waits on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from tests.fault.proxy import Proxy, called
from tests.fault.stage import eventually

from penstock.clock import system, ticks
from penstock.engine.conversation import Conversation, Holder
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.link import Link, wait_as_long_as_a_request
from penstock.storage.connection import flow_watch
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.error_meaning import is_lost
from penstock.storage.connection.flow import Flow, Session
from penstock.storage.connection.flow_watch import FlowWatch
from penstock.storage.work import workers


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


@pytest.fixture
def distant(proxy: Proxy) -> Iterator[Database]:
    database = Database(proxy.url, lease_seconds=1.5)
    yield database
    database.close()


def register(connection: Connection) -> int:
    return workers.register(
        connection, name="w", host="h", pid=1, version="0", concurrency=1, lease_seconds=1.5, tasks=()
    )


def test_g13_a_dead_flow_in_the_middle_of_a_transaction_holds_nobody_up(
    proxy: Proxy, distant: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []

    def lock_and_ask(connection: Connection) -> int:
        with connection.transaction():
            connection.execute("lock table penstock.queue")
            attempts.append(connection.info.backend_pid)
            if len(attempts) == 1:
                proxy.kill_flows(called("penstock"))
            return len(connection.execute("select 1").fetchall())

    assert distant.run(lock_and_ask, timeout=60.0) == 1
    assert len(set(attempts)) == 2
    # On a busy machine the probe may have been late, and have cut it for that.
    assert f"its session {attempts[0]} does nothing" in caplog.text or "is down" in caplog.text
    with psycopg.connect(database_url) as other:
        assert other.execute("select pid from pg_stat_activity where pid = %s", attempts[:1]).fetchone() is None


def test_g13_a_dead_flow_that_was_cut_because_the_server_hung_holds_nobody_up(proxy: Proxy, distant: Database) -> None:
    attempts = []

    def lock_and_ask(connection: Connection) -> int:
        with connection.transaction():
            connection.execute("lock table penstock.queue")
            attempts.append(connection.info.backend_pid)
            if len(attempts) == 1:
                # Nobody answers for a while; and when they do, this flow is dead.
                proxy.kill_flows(called("penstock"))
                proxy.stall()
                threading.Thread(target=go_on_when_down, daemon=True).start()
            return len(connection.execute("select 1").fetchall())

    def go_on_when_down() -> None:
        eventually(lambda: distant.breaker.is_down, "the database is found to hang")
        proxy.flow()

    answers: list[int] = []
    threading.Thread(target=lambda: answers.append(distant.run(lock_and_ask, timeout=60.0)), daemon=True).start()
    eventually(lambda: answers == [1], "the lock was free for the next")
    assert len(set(attempts)) == 2


def test_g13_a_statement_that_the_server_works_on_is_waited_for(distant: Database) -> None:
    # For more than a lease.
    assert distant.run(lambda connection: connection.execute("select 7 from pg_sleep(4)").fetchone()) == (7,)


def test_g13_a_connection_that_only_listens_is_left_in_peace(distant: Database) -> None:
    with distant.connect("listener") as connection:
        process = connection.info.backend_pid
        assert list(connection.notifies(timeout=4)) == []
        assert connection.execute("select pg_backend_pid()").fetchone() == (process,)


def test_g13_the_pulse_of_a_spark_worker_beats_on_when_its_flow_goes_dead(proxy: Proxy, distant: Database) -> None:
    beats: list[int] = []

    def renew(connection: Connection) -> workers.Renewal:
        row = connection.execute("select pg_backend_pid()").fetchone()
        beats.append(row[0] if row else 0)
        return workers.Renewal("here", 1)

    heartbeat = Heartbeat(distant, 1.5, renew, ticks())
    eventually(lambda: beats, "it beats")
    assert proxy.kill_flows(called("penstock heartbeat")) == 1
    eventually(lambda: len(set(beats)) > 1, "it beats on another connection")
    heartbeat.stop()


def test_the_pulse_of_a_spark_worker_that_is_too_old_for_the_functions_beats_on_and_says_so(distant: Database) -> None:
    beats: list[int] = []

    def renew(_: Connection) -> workers.Renewal:
        beats.append(1)
        return workers.Renewal("here", 99)

    heartbeat = Heartbeat(distant, 1.5, renew, ticks())
    mismatch = eventually(lambda: heartbeat.mismatch, "it hears of it")
    assert "upgrade penstock" in str(mismatch)
    # What it holds is its own until it has settled it.
    before = len(beats)
    eventually(lambda: len(beats) > before, "it beats on")
    assert heartbeat.is_valid
    heartbeat.stop()


def test_g13_the_conversation_of_a_spark_worker_goes_on_when_its_flow_goes_dead(
    proxy: Proxy, distant: Database
) -> None:
    link = Link(distant, "conversation", wait_as_long_as_a_request(distant))
    conversation = Conversation(link, Holder(distant.run(register), "w"))
    first = conversation.ask(lambda connection: connection.info.backend_pid)
    assert proxy.kill_flows(called("penstock conversation")) == 1
    ask = "select pg_backend_pid()"
    assert conversation.ask(lambda connection: connection.execute(ask).fetchone()) != (first,)
    link.close()


def test_what_carries_a_lease_is_cut_after_one_whatever_the_server_does(distant: Database) -> None:
    with distant.connect("conductor", carries_lease=True) as connection, pytest.raises(psycopg.OperationalError) as cut:
        connection.execute("select pg_sleep(60)")
    assert is_lost(cut.value)


def test_g13_a_probe_whose_own_flow_goes_dead_does_not_leave_the_others_unwatched(
    proxy: Proxy, distant: Database
) -> None:
    answers: list[int] = []

    def ask(connection: Connection) -> int:
        return len(connection.execute("select 1").fetchall())

    assert distant.run(ask) == 1
    proxy.cut_next("swallowed", lambda chunk, said: called("penstock probe")(said) and b"pg_stat_activity" in chunk)
    assert proxy.kill_flows(called("penstock"))
    asking = threading.Thread(target=lambda: answers.append(distant.run(ask, timeout=60.0)), daemon=True)
    asking.start()
    eventually(lambda: proxy.cut_count, "the probe's flow is dead, too")
    eventually(lambda: answers == [1], "who asked was told")


def test_a_session_whose_machine_is_gone_does_not_last_for_hours(distant: Database) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    row = distant.run(
        lambda c: c.execute("select " + ", ".join(f"current_setting('{n}')::int" for n in names)).fetchone()
    )
    assert row is not None
    idle, interval, count = row
    assert 0 < idle + interval * count <= 60
    notice = distant.run(lambda c: c.execute("show client_connection_check_interval").fetchone())
    assert notice == ("2s",)


class Numbered(Flow):
    """A connection whose server process is gone, and whose number is another's by now."""

    is_cut = False

    def cut(self) -> None:
        self.is_cut = True


@pytest.mark.parametrize("is_left", [False, True])
def test_a_session_that_has_the_number_of_one_that_is_gone_is_not_ended(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    monkeypatch.setattr(flow_watch, "LEAST_SECONDS", 0.0)
    flows = FlowWatch(lease_seconds=0.0)
    with (
        Numbered.connect(database_url, autocommit=True) as stranger,
        psycopg.connect(database_url, autocommit=True) as probe,
    ):
        row = stranger.execute("select pg_backend_pid(), backend_start from pg_stat_get_activity(pg_backend_pid())")
        process, began_at = row.fetchone() or (0, None)
        gone = Session(process, began_at - timedelta(hours=1))
        flows.add(stranger)
        stranger.session = gone
        if is_left:
            assert stranger.on_cut is not None
            stranger.on_cut(gone)
        else:
            stranger.waiting_since = system.monotonic() - 3600
        dead = flows.end_dead(probe)
        assert [each.process for each in dead] == ([] if is_left else [process])
        assert stranger.is_cut is not is_left
        assert not flows.has_cut
        assert stranger.execute("select 1").fetchone() == (1,)
