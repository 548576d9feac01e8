"""Mixed calls of the HTTP API, and what was acknowledged: whatever an answer said must be so in the end."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.fault.http_servers import Caller

from penstock import App
from penstock.model import Job

__all__ = ["ORDERED", "PLAIN", "Acknowledged", "Made", "Producer", "RemoteWorker", "is_drained"]

PLAIN, ORDERED = "plain", "ordered"
TASK = "greet"
KEYS_OF_A_PRODUCER = 3
MOST_KNOWN = 200


class Made(NamedTuple):
    """A call that was answered: when it was begun, and how often it was tried."""

    began: float
    tries: int


@dataclass
class Acknowledged:
    """What was said in answers; added to by several threads."""

    # By label: the id that was given.
    enqueued: dict[str, str] = field(default_factory=dict)
    # Labels of a load whose ids nobody was told.
    loaded: set[str] = field(default_factory=set)
    # By key: the labels of its jobs, in the order they were enqueued.
    of_key: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    cancelled: set[str] = field(default_factory=set)
    # By id: the result that a worker said and that was taken.
    settled: dict[str, str] = field(default_factory=dict)
    calls: list[Made] = field(default_factory=list)

    def judge(self, app: App) -> None:
        """Everything holds that was acknowledged, and nothing is there twice."""
        jobs = {str(job.id): job for queue in (PLAIN, ORDERED) for job in _all_jobs(app, queue)}
        by_label = Counter(job.args["label"] for job in jobs.values())
        twice = [label for label, count in by_label.items() if count > 1]
        assert not twice, f"enqueued twice: {twice[:5]}"
        lost = [label for label, id_ in self.enqueued.items() if id_ not in jobs or label_of(jobs[id_]) != label]
        lost += [label for label in self.loaded if label not in by_label]
        assert not lost, f"acknowledged and not there: {lost[:5]}"
        undone = [id_ for id_ in self.cancelled if jobs[id_].state != "cancelled"]
        assert not undone, f"cancelled, and {jobs[undone[0]].state}: {undone[:5]}"
        for id_, result in self.settled.items():
            assert (jobs[id_].state, jobs[id_].result) == ("succeeded", result), jobs[id_]
        self._judge_order(jobs)

    def _judge_order(self, jobs: dict[str, Job]) -> None:
        for key, labels in self.of_key.items():
            ran = [job for label in labels if (job := jobs[self.enqueued[label]]).state == "succeeded"]
            for before, after in pairwise(ran):
                assert before.finished_at is not None
                assert after.started_at is not None
                assert before.finished_at <= after.started_at, f"{after.id} of key {key} overtook {before.id}"


def label_of(job: Job) -> Any:
    return job.args["label"]


def _all_jobs(app: App, queue: str) -> Iterator[Job]:
    before = None
    while True:
        page = app.job_page(queue=queue, limit=1_000, before=before)
        yield from page.jobs
        if page.next is None:
            return
        before = page.next


class _Thread:
    """Somebody who calls, in a thread of its own."""

    def __init__(self, name: str, ports: list[int], acknowledged: Acknowledged, seed: int) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.caller = Caller(ports, seed + 1)
        self.acknowledged = acknowledged
        self.problem: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def end(self) -> None:
        """Let it end, and wait until it has."""
        self._is_over.set()
        self._thread.join()

    def join(self) -> Counter[int]:
        """Wait until it is done; how often it was answered with which status."""
        self._thread.join()
        if self.problem is not None:
            raise self.problem
        return self.caller.statuses

    def go(self) -> None:
        raise NotImplementedError

    def call(self, method: str, path: str, body: Any = None, *statuses: int, **headers: str) -> Any:
        """Make a call, which must be answered so."""
        began = time.monotonic()
        answer = self.caller.call(method, path, body, **headers)
        self.acknowledged.calls.append(Made(began, self.caller.tries))
        assert answer.status in statuses, f"{method} {path}: {answer}"
        return answer

    def _run(self) -> None:
        try:
            self.go()
        except BaseException as error:
            self.problem = error
        finally:
            self.caller.close()


class Producer(_Thread):
    """Enqueues, loads, looks and cancels, until there are enough calls. It may be told when each is due."""

    def __init__(
        self, name: str, ports: list[int], acknowledged: Acknowledged, seed: int, due: Iterator[float]
    ) -> None:
        self._due = due
        self._labels = 0
        # Ids it was given lately: whom it asks about.
        self._known: list[str] = []
        super().__init__(name, ports, acknowledged, seed)

    def go(self) -> None:
        kinds = [
            self.enqueue,
            self.enqueue_many,
            self.look,
            self.page,
            self.stats,
            self.explain,
            self.cancel,
            self.load,
        ]
        for due in self._due:
            if self._is_over.is_set():
                return
            time.sleep(max(0.0, due - time.monotonic()))
            (act,) = self.random.choices(kinds, [30, 10, 22, 8, 8, 8, 8, 2])
            act()

    def enqueue(self) -> None:
        self._enqueue(1)

    def enqueue_many(self) -> None:
        self._enqueue(self.random.randrange(2, 25))

    def look(self) -> None:
        if id_ := self._one():
            wait = self.random.choice(["", "?wait=0.2"])
            answer = self.call("GET", f"jobs/{id_}{wait}", None, 200)
            assert answer.value["id"] == id_
            assert id_ not in self.acknowledged.cancelled or answer.value["state"] == "cancelled"

    def page(self) -> None:
        queue = self.random.choice([PLAIN, ORDERED])
        self.call("GET", f"jobs?queue={queue}&limit=20", None, 200)

    def stats(self) -> None:
        self.call("GET", f"queues/{self.random.choice([PLAIN, ORDERED])}/stats", None, 200)

    def explain(self) -> None:
        if id_ := self._one():
            self.call("GET", f"jobs/{id_}/explain", None, 200)

    def cancel(self) -> None:
        if id_ := self._one():
            answer = self.call("POST", f"jobs/{id_}/cancel", {}, 200)
            if answer.value["state"] == "cancelled":
                self.acknowledged.cancelled.add(id_)

    def load(self) -> None:
        labels = self._new_labels(self.random.randrange(1, 40))
        body = "".join(json.dumps({"label": label}) + "\n" for label in labels).encode()
        path = f"queues/{PLAIN}/loads/{labels[0]}?task={TASK}&rows={len(labels)}"
        self.call("PUT", path, body, 200, 201, Content_Type="application/x-ndjson")
        self.acknowledged.loaded.update(labels)

    def _enqueue(self, count: int) -> None:
        labels = self._new_labels(count)
        queue = self.random.choice([PLAIN, ORDERED])
        key = f"{self.name}/{self.random.randrange(KEYS_OF_A_PRODUCER)}" if queue == ORDERED else None
        jobs = [{"task": TASK, "args": {"label": label}, **({"key": key} if key else {})} for label in labels]
        body = jobs[0] if count == 1 else {"jobs": jobs}
        answer = self.call("POST", f"queues/{queue}/jobs", body, 201, Idempotency_Key=labels[0])
        ids = answer.value["ids"]
        assert len(ids) == count
        self.acknowledged.enqueued.update(zip(labels, ids, strict=True))
        if key is not None:
            self.acknowledged.of_key[key] += labels
        self._known = [*self._known, *ids][-MOST_KNOWN:]

    def _one(self) -> str | None:
        return self.random.choice(self._known) if self._known else None

    def _new_labels(self, count: int) -> list[str]:
        first, self._labels = self._labels, self._labels + count
        return [f"{self.name}-{first + number}" for number in range(count)]


class RemoteWorker(_Thread):
    """Takes jobs and says how they ended, until it is told to stop."""

    def __init__(self, name: str, ports: list[int], acknowledged: Acknowledged, seed: int, lease: float) -> None:
        self._lease = lease
        super().__init__(name, ports, acknowledged, seed)

    def go(self) -> None:
        while not self._is_over.is_set():
            self._work()

    def _work(self) -> None:
        tasks = {queue: {TASK: {"backoff": 0}} for queue in (PLAIN, ORDERED)}
        asked = {"name": self.name, "queues": tasks, "concurrency": 50, "lease": self._lease}
        worker = self.call("POST", "workers", asked, 201).value["worker"]
        number, ends = 0, list[dict[str, Any]]()
        while not self._is_over.is_set() or ends:
            number += 1
            want = 0 if self._is_over.is_set() else self.random.randrange(1, 50)
            poll = {"number": number, "ends": ends, "want": want, "wait": 0.3}
            answer = self.call("POST", f"workers/{worker}/poll", poll, 200, 409, 410)
            if answer.status == 410:
                # It was silent for too long: what it held is others' by now.
                return
            given, lost = [], {(each["job"], each["lease"]) for each in ends}
            if answer.status == 200:
                given = answer.value["jobs"]
                lost = {(each["job"], each["lease"]) for each in answer.value["lost"]}
            self._note_settled([end for end in ends if (end["job"], end["lease"]) not in lost])
            for job in given:
                said = self.acknowledged.settled.get(job["id"])
                assert said is None, f"{job['id']} is given out, and was settled with {said}"
            ends = [self._end(job) for job in given]
        self.call("DELETE", f"workers/{worker}", None, 204)

    def _end(self, job: dict[str, Any]) -> dict[str, Any]:
        named = {"job": job["id"], "lease": job["lease"]}
        if self.random.random() < 0.05:
            return named | {"end": "retry", "error": "not yet", "after": 0}
        return named | {"end": "succeeded", "result": f"{self.name} {job['args']['label']} {job['attempt']}"}

    def _note_settled(self, ends: list[dict[str, Any]]) -> None:
        self.acknowledged.settled |= {end["job"]: end["result"] for end in ends if end["end"] == "succeeded"}


def is_drained(app: App) -> bool:
    """Whether every job has ended."""
    return all(
        (stats := app.stats(queue)).queue_length == stats.active_count == stats.scheduled == 0
        for queue in (PLAIN, ORDERED)
    )
