"""Mixed calls over HTTP at two servers of which one is killed again and again: what was acknowledged holds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.fault.http_calls import ORDERED, PLAIN, Acknowledged, Producer, RemoteWorker, is_drained
from tests.fault.http_servers import HttpServers
from tests.fault.stage import eventually
from tests.fault.tally import brought

from penstock import App

FAULT = "server of the HTTP API killed"
LEASE = 2.0
CALLS_A_SECOND = 300
# Whoever was told that a kill is over a second ago is owed an answer.
RECOVERY_SECONDS = 1.0
LEAST_ANSWERED = 0.99


class Calls:
    """Calls that producers make among them: each takes the next, which may be due at a time."""

    def __init__(self, count: int, a_second: float | None) -> None:
        self.made = 0
        self._count = count
        self._a_second = a_second
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[float]:
        return self

    def __next__(self) -> float:
        with self._lock:
            if self.made >= self._count:
                raise StopIteration
            self.made += 1
            return self._began + (self.made / self._a_second if self._a_second else 0.0)


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue(PLAIN)
        app.queue(ORDERED, partitions=3, order="key")
        app.migrate()
        yield app


def kill_under_calls(
    app: App,
    folder: Path,
    seed: int,
    *,
    calls: int,
    kills: int,
    a_second: float | None = None,
    restarts: bool = False,
) -> tuple[Acknowledged, list[float]]:
    """Make so many calls while servers are killed one after the other, evenly among them; what was acknowledged by
    then, and when each was killed. With `restarts` both are told to stop at once after that.
    """
    acknowledged, killed = Acknowledged(), list[float]()
    with ExitStack() as stack:
        servers = HttpServers(app.plain_url, folder)
        stack.callback(lambda: print(servers.log_path.read_text()[-8000:]))  # noqa: T201
        stack.callback(servers.close)
        due = Calls(calls, a_second)
        workers = [RemoteWorker(f"w{n}", servers.ports, acknowledged, seed + n, LEASE) for n in range(4)]
        producers = [Producer(f"p{n}", servers.ports, acknowledged, seed + 100 + n, due) for n in range(12)]
        # Also where the test fails: nobody may call on beside the next test.
        for caller in (*producers, *workers):
            stack.callback(caller.end)
        for number in range(kills):
            eventually(lambda: due.made >= calls * (number + 1) // (kills + 1), "they call")  # noqa: B023
            killed.append(time.monotonic())
            servers.kill(number % 2)
            brought(FAULT)
        if restarts:
            eventually(lambda: due.made >= calls * kills // (kills + 1) + calls // (2 * kills + 2), "they call")
            servers.restart()
        statuses = sum((producer.join() for producer in producers), Counter[int]())
        eventually(lambda: is_drained(app), "every job has ended")
        for worker in workers:
            worker.end()
        statuses += sum((worker.join() for worker in workers), Counter[int]())
        servers.check()
        assert not [status for status in statuses if status >= 500 and status != 503], statuses
        assert "Traceback" not in servers.log_path.read_text()
    acknowledged.judge(app)
    return acknowledged, killed


def test_what_was_acknowledged_holds_when_a_server_is_killed_and_when_both_stop_at_once(
    app: App, tmp_path: Path, seed: int
) -> None:
    acknowledged, _ = kill_under_calls(app, tmp_path, seed, calls=500, kills=1, restarts=True)
    for said in (acknowledged.enqueued, acknowledged.loaded, acknowledged.cancelled, acknowledged.settled):
        assert said


@pytest.mark.long_run
def test_of_two_servers_one_may_be_killed_every_ten_seconds(app: App, tmp_path: Path, seed: int) -> None:
    began = time.monotonic()
    acknowledged, killed = kill_under_calls(
        app, tmp_path, seed, calls=60 * CALLS_A_SECOND, kills=5, a_second=CALLS_A_SECOND
    )
    # Each is tried at one server and then at the other.
    owed = [call for call in acknowledged.calls if not any(at <= call.began < at + RECOVERY_SECONDS for at in killed)]
    answered = sum(call.tries <= 2 for call in owed)
    seconds = max(call.began for call in acknowledged.calls) - began
    print(f"{len(acknowledged.calls) / seconds:.0f} calls a second, {answered} of {len(owed)} answered")  # noqa: T201
    assert answered >= LEAST_ANSWERED * len(owed)
