"""Looking over HTTP at a database with a million jobs in a hundred queues, half of them ended, some as dead letters;
beside it, call by call, at one with a single job of one queue. Every GET of the API, with the filters that an index
answers; what is stated is the 95th percentile of a call, from request to the last byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from bench.api_server import serving
from bench.processes import processes
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import connect
from bench.workload import ARGUMENTS, QUEUE, TASK
from penstock import App
from penstock.server.loading.load_request import LoadRequest
from penstock.server.loading.receive import receive_load
from penstock.server.operations import OPERATIONS

QUESTION = "How long does it take to look, over HTTP, at a million jobs in a hundred queues?"

QUEUES = 100
CALLS = 100
# What cannot be left out.
ASKED = {"/search": "?q={queue}"}
LOAD_ROWS = 100
ENOUGH_MS = 50
# Of one queue, of one state, of both; a load; a page further down.
FILTERS = (
    "queue={queue}",
    "partition={queue}",
    *(f"state={state}" for state in ("ready", "scheduled", "running", "succeeded", "failed")),
    *(f"queue={{queue}}&state={state}" for state in ("ready", "scheduled", "failed")),
    "queue={done}&state=succeeded",
    "load={load}",
    "before={job}",
)


def measure(run: Run) -> None:
    jobs = run.size(1_000_000, 20_000)
    paths = [*_paths(), *(f"/jobs?{each}" for each in FILTERS)]
    with ExitStack() as opened:
        full = opened.enter_context(_Place.filled(run, jobs, run.size(QUEUES, 10)))
        empty = opened.enter_context(_Place.filled(run, 1, 1))
        taken: dict[str, tuple[list[float], list[float]]] = {path: ([], []) for path in paths}
        for _ in run.repeats():
            for path in paths:
                for values, each in zip(taken[path], _p95(path, (full, empty), run.size(CALLS, 20)), strict=True):
                    values.append(each)
        for path, (of_full, of_empty) in taken.items():
            most = max(3.0, ENOUGH_MS / median(of_empty))
            run.compare(f"GET {path}", "ms", of_full, "of one job", of_empty, at_most=most)
    run.note(f"{jobs:,} jobs in {run.size(QUEUES, 10)} queues; 95th percentiles of {run.size(CALLS, 20)} calls each")
    run.note(f"a call may take 3 times as long as beside one job, or {ENOUGH_MS} ms: the larger of both is its bar")


def _paths() -> Iterator[str]:
    """Every GET there is; a new one has to be named here by what its path needs."""
    for operation in OPERATIONS:
        # A stream goes on, and there is no worker, nor another database.
        is_there = operation.path != "/events" and not {"{worker}", "{shard}"} & set(operation.segments)
        if operation.method == "GET" and is_there:
            kind = "load" if operation.path.startswith("/loads") else "cron"
            yield operation.path.replace("{name}", f"{{{kind}}}").replace("{job_id}", "{job}") + ASKED.get(
                operation.path, ""
            )
    yield "/jobs/{job}?wait=0"


class _Place:
    """A server on a database, and the names of what lies there."""

    def __init__(self, address: str, names: dict[str, str]) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc)
        self._names = names

    @staticmethod
    @contextmanager
    def filled(run: Run, jobs: int, queues: int) -> Iterator[_Place]:
        run.say(f"  {jobs:,} jobs in {queues} queues")
        with run.server.database() as url:
            names = _fill(url, jobs, queues)
            with serving(url) as address:
                yield _Place(address, names)

    def get(self, path: str) -> float:
        """How many milliseconds it takes."""
        began = time.perf_counter()
        self._connection.request("GET", f"/api/v1{path.format_map(self._names)}")
        answer = self._connection.getresponse()
        text = answer.read()
        taken = 1e3 * (time.perf_counter() - began)
        assert answer.status == 200, text
        return taken


def _p95(path: str, places: Sequence[_Place], calls: int) -> list[float]:
    """The 95th percentile at each place, which take turns."""
    taken: list[list[float]] = [[] for _ in places]
    for number in range(calls):
        for index in range(len(places)) if number % 2 else reversed(range(len(places))):
            taken[index].append(places[index].get(path))
    return [quantiles(each, n=20)[-1] for each in taken]


def _fill(url: str, jobs: int, queues: int) -> dict[str, str]:
    """Half of the queues are drained, and of their jobs one in a hundred is a dead letter; what is named is not."""
    names = [f"{QUEUE}-{number:03}" for number in range(queues)]
    drained = names[: queues // 2]
    app = App(url)
    tasks = [_declare(app, name) for name in names]
    with app:
        app.set_cron("nightly", "@yearly", names[-1], TASK, args=ARGUMENTS[0])
        for low in range(0, jobs, CALL):
            first = low % len(ARGUMENTS)
            tasks[low // CALL % queues].enqueue_many(ARGUMENTS[first : first + min(CALL, jobs - low)])
        tasks[-1].options(delay=3_600).enqueue_many(ARGUMENTS[: min(CALL, jobs)])
        if drained:
            worker = processes.Process(target=_drain, args=(url, drained))
            worker.start()
            worker.join()
            assert worker.exitcode == 0
        load = _load(url, names[-1])
        (job,) = app.jobs(queue=names[-1], state="scheduled", limit=1)
        with connect(url) as connection:
            connection.execute("vacuum (analyze)")
    return {"queue": names[-1], "done": names[0], "load": load, "cron": "nightly", "job": str(job.id), "shard": "1"}


def _load(url: str, queue: str) -> str:
    rows = b"".join(b'{"customer_id": "c-%d"}\n' % number for number in range(LOAD_ROWS))
    request = LoadRequest(
        queue=queue, name="backfill", content_type="application/x-ndjson", content_encoding=None, task="loaded",
        key=None, order_by=None, types=None, rows=None, trace=None,
    )  # fmt: skip
    # An app that declares no task takes any.
    with App(url) as app:
        return receive_load(app, request, iter([rows])).name


def _drain(url: str, queues: list[str]) -> None:
    with App(url) as app:
        for name in queues:
            _declare(app, name)
        app.work(queues, until_idle=True)


def _declare(app: App, queue: str) -> Any:
    @app.queue(queue).task(name=TASK, max_attempts=1)
    def handle(customer_id: str, amount: float, currency: str, reference: str, is_express: bool) -> None:
        if reference.endswith("00"):
            raise ValueError(f"{customer_id} has no money")

    return handle
