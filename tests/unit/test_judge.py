"""The judge is judged: a queue that works passes, and each of these broken ones is caught by its rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.judge.checker import judge
from tests.judge.history import Event, EventType, Recorder, read_history
from tests.judge.keys import order_findings
from tests.judge.snapshot import Snapshot


class Play:
    """A queue in a few lines, and its history: three jobs of one call, one of another, and a worker that stalls.

    Worker `a` starts job 1 under lease 1 and stalls; `b` is given it under lease 4 and settles it; `a` comes back and
    is refused. `flaw` names what the queue does wrong.
    """

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw
        self.events: list[Event] = []
        self.final = Snapshot()
        self._enqueue(["one", "two", "three"], first_job=1, call=1)
        self._enqueue(["four"], first_job=4, call=2)
        self._note("p", "enqueue", "invoke", label="five", call=3)
        self._note("p", "enqueue", "fail" if flaw == "writes what it refused" else "unknown", label="five", call=3)
        self._store(5, "five")
        self._work()
        self._flaws()
        states = self.final.states
        self.final.totals = {
            "opened": states["ready"] + states["running"],
            "scheduled": 0,
            "blocked": 0,
            "dead": states["failed"],
            "enqueued": len(self.final.labels) + (flaw == "counts wrong"),
            "completed": states["succeeded"],
            **{name: states[name] for name in ("cancelled", "discarded", "expired")},
        }

    def _note(self, actor: str, act: str, type_: EventType, **facts: object) -> None:
        self.events.append(Event(len(self.events), actor, act, type_, **facts))  # type: ignore[arg-type]

    def _enqueue(self, labels: list[str], first_job: int, call: int) -> None:
        for label in labels:
            self._note("p", "enqueue", "invoke", label=label, call=call, group="q")
        for job, label in enumerate(labels, first_job):
            self._note("p", "enqueue", "ok", label=label, job=job, call=call, group="q")
            self._store(job, label)

    def _store(self, job: int, label: str) -> None:
        self.final.labels[job] = label
        self.final.places.append((job, "succeeded"))

    def _run(self, actor: str, job: int, lease: int) -> None:
        self._note(actor, "run", "invoke", job=job, lease=lease)

    def _end(self, actor: str, job: int, lease: int, type_: EventType = "ok") -> None:
        self._note(actor, "run", "ok", job=job, lease=lease)
        self._note(actor, "settle", type_, job=job)

    def _work(self) -> None:
        order = [2, 3, 4, 5]
        if self.flaw == "runs the last of a call first":
            order = [3, 2, 4, 5]
        elif self.flaw == "runs what came later first":
            order = [4, 2, 3, 5]
        self._run("a", 1, 1)
        self._run("b", 1, 1 if self.flaw == "gives one lease to two" else 6)
        for job in order:
            if self.flaw == "forgets to run" and job == 3:
                continue
            self._run("b", job, job)
            self._end("b", job, job)
        if self.flaw == "has no lease guard":
            self._end("a", 1, 1)
            self._end("b", 1, 6, "fail")
        elif self.flaw == "tells two workers yes":
            self._end("b", 1, 6)
            self._end("a", 1, 1)
        else:
            self._end("b", 1, 6)
            self._end("a", 1, 1, "fail")

    def _flaws(self) -> None:
        labels, places = self.final.labels, self.final.places
        match self.flaw:
            case "loses what it acknowledged":
                del labels[4]
                places.remove((4, "succeeded"))
            case "publishes twice":
                self._store(9, "five")
                self._run("b", 9, 9)
            case "makes jobs up":
                self._store(9, "nine")
                self._run("b", 9, 9)
            case "settles twice":
                places.append((2, "succeeded"))
            case "keeps a finished job ready":
                places.append((2, "ready"))
            case "leaves a job with a dead worker":
                places[places.index((4, "succeeded"))] = (4, "running")
            case "drops a job on its way":
                places.remove((5, "succeeded"))
            case "keeps the state and loses the job":
                del labels[5]
            case "gives the wrong id":
                labels[4], labels[5] = labels[5], labels[4]
            case "forgets what it settled":
                places[places.index((3, "succeeded"))] = (3, "cancelled")


BROKEN = {
    "loses what it acknowledged": "acknowledged and lost",
    "gives the wrong id": "acknowledged under an id that is not its own",
    "makes jobs up": "from nowhere",
    "publishes twice": "written twice",
    "writes what it refused": "refused and yet written",
    "settles twice": "settled twice",
    "keeps a finished job ready": "in two places",
    "leaves a job with a dead worker": "never ended",
    "drops a job on its way": "in no state",
    "keeps the state and loses the job": "a state without a job",
    "counts wrong": "not conserved",
    "gives one lease to two": "one lease, two holders",
    "forgets to run": "succeeded without a run",
    "has no lease guard": "a stale settle accepted",
    "tells two workers yes": "two workers were told that they settled it",
    "forgets what it settled": "a settle acknowledged and lost",
    "runs the last of a call first": "out of order",
    "runs what came later first": "out of order",
}


def test_a_queue_that_works_passes_and_its_trouble_is_counted() -> None:
    play = Play()
    verdict = judge(play.events, play.final, ordered=["q"])
    verdict.require("a job run again", "a stale settle refused", "an enqueue of unknown outcome", "an order to keep")


@pytest.mark.parametrize("flaw", BROKEN)
def test_a_broken_queue_is_caught(flaw: str) -> None:
    play = Play(flaw)
    verdict = judge(play.events, play.final, ordered=["q"])
    assert BROKEN[flaw] in verdict.findings
    with pytest.raises(AssertionError, match=BROKEN[flaw]):
        verdict.require()


def test_a_run_without_trouble_proves_nothing() -> None:
    verdict = judge([], Snapshot())
    with pytest.raises(AssertionError, match="proves nothing"):
        verdict.require("a job run again")


def test_two_recorders_write_one_history(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path / "history", "a"), Recorder(tmp_path / "history", "b")
    with first.enqueuing(["x"], "q") as ids:
        second.note("run", "invoke", job=1)
        ids.append(7)
    first.close()
    second.close()
    events = read_history(tmp_path / "history")
    assert [(event.actor, event.act, event.type) for event in events] == [
        ("a", "enqueue", "invoke"),
        ("b", "run", "invoke"),
        ("a", "enqueue", "ok"),
    ]
    assert events[-1].job == 7


@pytest.mark.parametrize(("outcome", "type_"), [("not written", "fail"), ("unknown", "unknown")])
def test_only_an_error_that_says_so_counts_as_refused(tmp_path: Path, outcome: str, type_: str) -> None:
    class Broken(Exception):
        def __init__(self) -> None:
            self.outcome = outcome

    recorder = Recorder(tmp_path / "history")
    with pytest.raises(Broken), recorder.enqueuing(["x"]):
        raise Broken
    recorder.close()
    assert read_history(tmp_path / "history")[-1].type == type_


def test_a_batch_counts_as_one_run_of_its_key_and_may_be_run_again_as_its_jobs() -> None:
    def run(at: int, job: int, type_: EventType = "invoke", batch: int = 0, actor: str = "a") -> Event:
        return Event(at, actor, "run", type_, label=f"l{job}", job=job, lease=job if batch else job + 100, call=batch)

    def settle(at: int, job: int) -> Event:
        return Event(at, "a", "settle", "ok", job=job)

    def found(*events: Event) -> set[str]:
        history = sorted([*calls, *events], key=lambda event: event.at)
        return set(judge(history, final, per_key={"o": 1}, batched=["o"]).findings)

    calls = [
        Event(job * 2 + (type_ == "ok"), "p", "enqueue", type_, label=f"l{job}", job=job, call=job, group="o/k")
        for job in (1, 2, 3)
        for type_ in ("invoke", "ok")
    ]
    final = Snapshot({1: "l1", 2: "l2", 3: "l3"}, [(job, "succeeded") for job in (1, 2, 3)])
    together = [run(20, 1, batch=1), run(21, 2, batch=1), run(24, 1, "ok", 1), run(25, 2, "ok", 1)]
    alone = [run(40, 3), run(41, 3, "ok")]
    assert found(*together, *alone) == set()
    # It was killed, and all of it runs again, alone.
    again = [run(30, 1), run(31, 1, "ok"), settle(32, 1), run(33, 2), run(34, 2, "ok"), settle(35, 2)]
    assert found(*together[:2], *again, *alone) == set()
    # One of it is tried again after another had ended.
    assert found(*together, settle(26, 2), run(30, 1), run(31, 1, "ok"), *alone) == set()
    # The next of the key began before the batch was over, or ended before one of it ran.
    assert found(*together, run(22, 3, actor="b"), run(23, 3, "ok", actor="b")) == {"too many of a key at once"}
    assert found(*together[:2], *alone, settle(42, 3), run(50, 1), run(51, 2)) == {"out of order"}
    assert found(run(20, 3, batch=3), run(21, 1, batch=3), run(22, 2, batch=3)) == {"out of order"}


def test_keys_and_limits_of_a_queue_are_judged_by_its_own_jobs() -> None:
    def run(at: int, actor: str, job: int, type_: EventType = "invoke") -> Event:
        return Event(at, actor, "run", type_, label=f"l{job}", job=job, lease=job)

    calls = [
        Event(job, "p", "enqueue", type_, label=f"l{job}", job=job if type_ == "ok" else 0, call=job, group=group)
        for job, group in ((1, "o/a"), (2, "o/a"), (3, "x/a"))
        for type_ in ("invoke", "ok")
    ]
    runs = [run(10, "a", 2), run(11, "b", 1), run(12, "c", 3)]
    ends = [run(13, "a", 2, "ok"), run(14, "b", 1, "ok"), run(15, "c", 3, "ok")]
    history = [*calls, *runs, *ends]
    final = Snapshot({1: "l1", 2: "l2", 3: "l3"}, [(job, "succeeded") for job in (1, 2, 3)])
    found = judge(history, final, per_key={"o": 1}, limits={"o": 1}).findings
    assert {"out of order", "too many of a key at once", "over the limit"} == set(found)
    assert not judge(history, final, per_key={"x": 1}, limits={"o": 2, "x": 1}).findings
    # A limit that is changed holds as the higher of the two until the change is through.
    assert judge(history, final, limits={"o": 3}).findings == {}
    raised = [*history, Event(9, "p", "limit", "invoke", group="o", attempt=2)]
    assert not judge(sorted(raised, key=lambda e: e.at), final, limits={"o": 1}).findings
    lowered = [
        *history,
        Event(8, "p", "limit", "invoke", group="o", attempt=1),
        Event(9, "p", "limit", "ok", group="o", attempt=1),
    ]
    assert "over the limit" in judge(sorted(lowered, key=lambda e: e.at), final, limits={"o": 2}).findings
    assert not judge(sorted(lowered[:-1], key=lambda e: e.at), final, limits={"o": 2}).findings
    # What a stopped worker runs when it comes back proves nothing: others may have its place.
    stopped = [Event(11, "p", "stop", "ok", label="a"), *history]
    assert "over the limit" not in judge(sorted(stopped, key=lambda e: e.at), final, limits={"o": 1}).findings


def test_one_start_for_each_stop_may_have_been_decided_before_it() -> None:
    def run(at: int, actor: str, job: int, lease: int) -> Event:
        return Event(at, actor, "run", "invoke", label=f"l{job}", job=job, lease=lease)

    calls = [
        Event(job, "p", "enqueue", type_, label=f"l{job}", job=job if type_ == "ok" else 0, call=job, group="o/a")
        for job in (1, 2, 3)
        for type_ in ("invoke", "ok")
    ]
    # `a` is stopped with leases of both jobs, `b` runs all, and `a` comes back.
    stop = Event(10, "p", "stop", "ok", label="a")
    runs = [run(11, "b", 1, 7), run(12, "b", 2, 8), run(13, "b", 3, 9)]
    once = [*calls, stop, *runs, run(14, "a", 1, 5)]
    assert not list(order_findings(once))
    assert list(order_findings([*once, run(15, "a", 2, 6)]))
    assert list(order_findings([event for event in once if event is not stop]))
    assert list(order_findings([*calls, *runs, Event(14, "p", "stop", "ok", label="a"), run(15, "a", 1, 5)]))


def test_what_was_pruned_is_not_lost_if_it_was_run_to_its_end() -> None:
    play = Play()
    del play.final.labels[4]
    play.final.places.remove((4, "succeeded"))
    assert not judge(play.events, play.final, forgets=True).findings
    assert judge(play.events, play.final).findings
    never_run = [event for event in play.events if event.act != "run" or event.job != 4]
    never_run = [event for event in never_run if event.act != "settle" or event.job != 4]
    assert "acknowledged and lost" in judge(never_run, play.final, forgets=True).findings
