"""Quick runs: jobs that need nothing but their handler end as all others do; any other job is handed back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.clock import ticks
from penstock.log_records import current_job
from penstock.storage import Database
from penstock.storage.work.leases import Lease
from penstock.task import define
from penstock.task.definition import TaskDefinition
from penstock.worker.backlog import Backlog
from penstock.worker.claimed_job import ClaimedJob
from penstock.worker.context import Registration
from penstock.worker.hooks import Hooks
from penstock.worker.quick_run import run_quickly
from penstock.worker.slot_pool import Slot, SlotPool
from penstock.worker.stop_request import StopRequest


@pytest.fixture(autouse=True)
def nobody_wants_jobs_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have made a filter of the log, which does for good."""
    monkeypatch.setattr(current_job, "is_wanted", False)


class Scene:
    """A slot that has taken all jobs of a task, one for each of these arguments."""

    def __init__(self, function: Callable[..., Any], args: list[str]) -> None:
        self.task: TaskDefinition = define("q", function, name="t")
        self.pool = SlotPool(1, lambda _: None)
        registration = Registration(Database("postgresql://nowhere"), "", lambda *_: None, StopRequest())
        self.backlog = Backlog(self.pool, registration, lambda: None)
        self.backlog.valid_until = ticks() + 3_600 * 10**9
        self.backlog.expect(0.0)
        lease = Lease(1, 1, 5, 1, 1, 0, len(args), None, 1, 0, False, "t", 0.0)
        self.jobs = [ClaimedJob(lease, self.task, 1024 + n, each, None, None) for n, each in enumerate(args)]
        self.hooks = Hooks()
        self.task.arguments.decode('{"n":0}')  # What is known after the first job.
        self.backlog.feed(self.jobs, 0)
        self.slot: Slot = self.pool.add_slot(lambda: None)
        assert self.pool.take(self.slot)

    def run(self) -> ClaimedJob | None:
        return run_quickly(self.slot, self.hooks)


def numbers(count: int) -> list[str]:
    return [f'{{"n":{number}}}' for number in range(count)]


def test_all_of_a_bunch_run_in_order_and_are_handed_in() -> None:
    seen: list[int] = []
    scene = Scene(lambda n: seen.append(n), numbers(20))
    assert scene.run() is None
    assert seen == list(range(20))
    assert list(scene.backlog.done) == scene.jobs
    assert all(0 < job.started < job.ended and job.verdict is None for job in scene.jobs)


def test_results_and_errors_are_each_jobs_own() -> None:
    def half(n: int) -> float:
        if n == 3:
            raise SystemExit("not the worker's end")
        return n / 2

    scene = Scene(half, [*numbers(4), '{"n":4,"more":1}', "no json", '{"n":6}'])
    assert scene.run() is None
    assert [job.result for job in scene.jobs] == [b"0.0", b"0.5", b"1.0", None, None, None, b"3.0"]
    said = [job.verdict and job.verdict.error and job.verdict.error.partition("\n")[0] for job in scene.jobs]
    assert said[:3] == [None] * 3
    assert said[6] is None
    assert "not the worker's end" in (said[3] or "")
    assert "has no argument 'more'" in (said[4] or "")
    assert "not JSON that can be read" in (said[5] or "")


def test_a_handler_that_wants_its_context_gets_it() -> None:
    seen: list[tuple[int, int]] = []

    def note(context: Any, n: int) -> None:
        seen.append((context.job_id, n))

    assert Scene(note, numbers(3)).run() is None
    assert seen == [(1024, 0), (1025, 1), (1026, 2)]


def test_whoever_watches_starts_gets_every_job() -> None:
    scene = Scene(lambda n: None, numbers(3))
    scene.hooks.add("started", print)
    assert scene.run() is scene.jobs[0]
    assert not scene.backlog.done


def test_a_log_that_names_jobs_gets_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(lambda n: None, numbers(3))
    monkeypatch.setattr(current_job, "is_wanted", True)
    assert scene.run() is scene.jobs[0]
    monkeypatch.setattr(current_job, "is_wanted", False)
    monkeypatch.setattr(logging.getLogger("penstock"), "level", logging.DEBUG)
    logging.getLogger("penstock").manager._clear_cache()  # type: ignore[attr-defined]
    try:
        assert scene.run() is scene.jobs[1]
    finally:
        monkeypatch.undo()
        logging.getLogger("penstock").manager._clear_cache()  # type: ignore[attr-defined]


def test_middleware_is_not_passed_by() -> None:
    @contextmanager
    def around(context: Any, args: Any) -> Iterator[None]:
        yield

    scene = Scene(lambda n: None, numbers(2))
    scene.task.middleware.add(around)
    assert scene.run() is scene.jobs[0]


def test_g4_what_may_not_start_is_handed_back_unstarted() -> None:
    scenes: list[Scene] = []

    def stop_the_next(n: int) -> None:
        scenes[0].backlog.asked_to_stop = {1024 + n + 1}

    scene = Scene(stop_the_next, numbers(3))
    scenes.append(scene)
    assert scene.run() is scene.jobs[1]
    assert list(scene.backlog.done) == scene.jobs[:1]
    scene = Scene(lambda n: None, numbers(3))
    scene.jobs[1].expires_at = 1
    assert scene.run() is scene.jobs[1]
    scene = Scene(lambda n: None, numbers(3))
    scene.backlog.valid_until = 0
    assert scene.run() is scene.jobs[0]
    assert not scene.backlog.done


def test_g13_after_its_slot_was_retired_nothing_more_starts_there() -> None:
    ran: list[int] = []
    scenes: list[Scene] = []

    def hang(n: int) -> None:
        ran.append(n)
        if n == 1:
            assert scenes[0].pool.take_away(scenes[0].slot, scenes[0].jobs[1], TimeoutError("too late"))

    scene = Scene(hang, numbers(5))
    scenes.append(scene)
    assert scene.run() is None
    assert ran == [0, 1]
    assert list(scene.backlog.waiting) == scene.jobs[2:]
    assert not scene.pool.take(scene.slot)


def test_g3_a_job_taken_while_its_slot_is_retired_goes_back_to_the_head() -> None:
    scene = Scene(lambda n: None, numbers(3))
    scene.slot.is_retired = True
    scene.pool.slots.remove(scene.slot)
    assert scene.slot.next() is None
    assert list(scene.backlog.waiting) == scene.jobs[:1]
    # It was not decided so after all: the slot goes on.
    scene.slot.is_retired = False
    assert scene.slot.next() is scene.jobs[1]
