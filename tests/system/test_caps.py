"""A worker's own shares: it never has more jobs of a queue than its cap, on all databases; queues take turns."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.system.cli_runs import CommandLine
from tests.system.conftest import Working
from tests.system.facts import eventually

from penstock import App, Context, InvalidInput, NotFound
from penstock.shards import Databases

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "gated": {"limit": 50}, "owned": {"order": "key"}}


class Rooms:
    """How many handlers of each queue are in, and were at most; they leave when they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, queue: str) -> None:
        with self._lock:
            self.now[queue] += 1
            self.most[queue] = max(self.most[queue], self.now[queue])
        self.let_go.wait(60)
        with self._lock:
            self.now[queue] -= 1


def declare(app: App, name: str, rooms: Rooms, **options: Any) -> Any:
    @app.queue(name, **options).task(name="visit", key="n" if "order" in options else None)
    def visit(n: int) -> None:
        rooms.enter(name)

    return visit


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_has_no_more_of_a_queue_than_its_cap_and_others_go_on(app: App, working: Working, kind: str) -> None:
    rooms = Rooms()
    deep = declare(app, "deep", rooms, **{"partitions": 4, **KINDS[kind]})
    other = declare(app, "other", rooms)
    deep.enqueue_many([{"n": n} for n in range(40)])
    with working(app, queues={"deep": 3, "other": None}, concurrency=8):
        eventually(lambda: rooms.now["deep"] == 3, "as many as the cap allows")
        # They fill no slots that others could have.
        other.enqueue_many([{"n": n} for n in range(5)])
        eventually(lambda: rooms.now["other"] == 5, "the other queue has the rest")
        assert app.stats("deep").active_count == 3
        rooms.let_go.set()
        eventually(lambda: app.stats("deep").total_completed == 40, "all is done in the end")
    assert rooms.most["deep"] <= 3


def test_what_a_cap_leaves_another_worker_takes(app: App, working: Working) -> None:
    rooms = Rooms()
    declare(app, "deep", rooms, limit=6).enqueue_many([{"n": n} for n in range(20)])
    with working(app, queues={"deep": 2}), working(app, queues={"deep": 1}):
        eventually(lambda: rooms.now["deep"] == 3, "each has its own share")
        assert app.stats("deep").active_count == 3
        rooms.let_go.set()
        eventually(lambda: app.stats("deep").total_completed == 20, "all is done in the end")
    assert rooms.most["deep"] <= 3


def test_queues_take_turns_however_many_partitions_one_has(app: App) -> None:
    order: list[tuple[str, int]] = []

    def declare(name: str, partitions: int) -> Any:
        # With a limit nothing is taken ahead: each claim is for the one slot.
        @app.queue(name, partitions=partitions, limit=1).task(name="note")
        def note(context: Context, n: int) -> None:
            order.append((name, Databases.number_of(context.job_id)))

        return note

    deep, shallow = declare("deep", 8), declare("shallow", 1)
    for _ in range(8):
        deep.enqueue_many([{"n": n} for n in range(20)])
    shallow.enqueue_many([{"n": n} for n in range(4)])
    app.work(concurrency=1, until_idle=True)
    # On its database every second one is of the shallow queue. Were partitions taken in turn, one in nine would be, one
    # in five where there are two databases.
    (shard,) = {shard for name, shard in order if name == "shallow"}
    there = [name for name, its_shard in order if its_shard == shard]
    assert max(index for index, name in enumerate(there) if name == "shallow") < 10


@pytest.mark.parametrize(
    ("queues", "refused"),
    [({"q": 0}, "queues"), ({"q": -1}, "queues"), ({"q": "4"}, "queues"), ({"q": 1001}, "queues"), ({1: 4}, "queues")],
)
def test_a_cap_that_is_none_is_refused(app: App, queues: Any, refused: str) -> None:
    declare(app, "q", Rooms())
    with pytest.raises(InvalidInput) as error:
        app.work(queues)
    assert error.value.field == refused
    with pytest.raises(NotFound, match="'nowhere'"):
        app.work({"nowhere": 1})


MAIL = """
import threading, time
from pathlib import Path
from penstock import App

app = App()
lock = threading.Lock()
now = most = started = 0
is_noted = False

@app.queue("mail").task
def send(n: int) -> None:
    global now, most, started
    with lock:
        now, started = now + 1, started + 1
        most = max(most, now)
        Path(__file__).with_name("most").write_text(str(most))
    # As many as may are in when the other queue's job runs; more than the cap allows are seen, and let go.
    while not is_noted and now <= 4:
        time.sleep(0.005)
    with lock:
        now -= 1

@app.queue("a=b").task
def note(n: int) -> None:
    global is_noted
    while now < 4 and started < 20:
        time.sleep(0.005)
    is_noted = True

send.enqueue_many([{"n": n} for n in range(20)])
note.enqueue(n=1)
"""


def test_the_command_line_caps_a_queue(tmp_path: Path, database_url: str) -> None:
    penstock = CommandLine(tmp_path, database_url)
    (tmp_path / "tasks.py").write_text(MAIL)
    ran = penstock("work", "tasks:app", "--queue", "mail=4", "--queue", "a=b", "--until-idle", "--json")
    assert (ran.code, ran.json["succeeded"]) == (0, 21)
    assert "working on mail (at most 4), a=b, 16 at a time" in ran.err
    assert (tmp_path / "most").read_text() == "4"
    assert penstock("work", "tasks:app", "--until-idle", "--json").json["succeeded"] == 21
    for wrong in ("mail=", "mail=x", "mail=0", "mail=1001"):
        said = penstock.wrong("work", "tasks:app", "--queue", wrong, "--until-idle")
        assert f"--queue: '{wrong}' has no number from 1 to 1,000 after '='" in said
    for again in ("mail=4", "mail=2", "mail"):
        said = penstock.wrong("work", "tasks:app", "--queue", "mail=4", "--queue", again, "--until-idle")
        assert "--queue: 'mail' is given twice" in said
    assert "'nowhere'" in penstock.refused("work", "tasks:app", "--queue", "nowhere=2")
