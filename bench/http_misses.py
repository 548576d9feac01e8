"""What a token is not for is as what is not there, also by the clock: a job of another tenant is asked for, and one
that was never enqueued, call by call in turns; and as many jobs of the token's own, which may take longer.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection
from itertools import permutations
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.api_server import serving
from bench.run import Run
from bench.workload import ARGUMENTS, QUEUE, declare
from penstock.storage.enqueue.job_group import RANGE

QUESTION = "Can a tenant tell, by how long it takes, whether another one has a job?"

JOBS, CALL = 2_000, 100
STATUSES = {"of another tenant": 404, "not there": 404, "its own": 200}
PATHS = ("", "/explain")


def measure(run: Run) -> None:
    pairs = run.size(2_000, 600)
    with run.server.database() as url:
        app, task = declare(url)
        with app:
            ids = {
                "of another tenant": _enqueue(task, "globex"),
                "its own": _enqueue(task, "acme"),
            }
            ids["not there"] = _unused(ids["of another tenant"])
            token = app.create_token("acme", role="read", tenant="acme")
        with serving(url) as address:
            client = _Client(address, token)
            for path in PATHS:
                taken: dict[str, list[float]] = {kind: [] for kind in STATUSES}
                for _ in run.repeats():
                    for kind, each in _interleave(client, ids, path, pairs).items():
                        taken[kind].append(each)
                name = f"GET jobs/{{id}}{path}"
                run.compare(
                    f"{name} of another tenant", "ms", taken["of another tenant"], "not there", taken["not there"],
                    at_most=1.1, at_least=0.9,
                )  # fmt: skip
                run.compare(f"{name} of its own", "ms", taken["its own"], "not there", taken["not there"])
    run.note(f"medians of {pairs:,} of each, in turns; queue {QUEUE}, {2 * JOBS:,} jobs")


def _enqueue(task: Any, tenant: str) -> list[int]:
    calls = (ARGUMENTS[low : low + CALL] for low in range(0, JOBS, CALL))
    return [id_ for call in calls for id_ in task.options(tenant=tenant).enqueue_many(call)]


def _unused(ids: list[int]) -> list[int]:
    """Ids that nobody has, of the same ranges."""
    ranges = {each // RANGE for each in ids}
    return sorted({each * RANGE + place for each in ranges for place in range(RANGE)} - {*ids})


class _Client:
    def __init__(self, address: str, token: str) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc)
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, status: int) -> float:
        """How many milliseconds it takes."""
        began = time.perf_counter()
        self._connection.request("GET", f"/api/v1/{path}", headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        taken = 1e3 * (time.perf_counter() - began)
        assert answer.status == status, text
        return taken


def _interleave(client: _Client, ids: dict[str, list[int]], path: str, pairs: int) -> dict[str, float]:
    """The median of each kind."""
    orders = list(permutations(STATUSES))
    taken: dict[str, list[float]] = {kind: [] for kind in STATUSES}
    for number in range(pairs):
        # Whoever is first, and whom it follows, changes.
        for kind in orders[number % len(orders)]:
            id_ = ids[kind][number % len(ids[kind])]
            taken[kind].append(client.get(f"jobs/{id_}{path}", STATUSES[kind]))
    return {kind: median(each) for kind, each in taken.items()}
