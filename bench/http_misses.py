"""What a token is not for is as what is not there, also by the clock: a job of another tenant is asked for, and one that
was never enqueued, call by call in turns; and as many jobs of the token's own, which may take longer.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlsplit

from bench.api_server import serving
from bench.run import Run
from bench.workload import ARGUMENTS, QUEUE, declare

QUESTION = "Can a tenant tell, by how long it takes, whether another one has a job?"

JOBS = 2_000
STATUSES = {"of another tenant": 404, "not there": 404, "its own": 200}
PATHS = ("", "/explain")


def measure(run: Run) -> None:
    pairs = run.size(2_000, 200)
    with run.server.database() as url:
        app, task = declare(url)
        with app:
            ids = {
                "of another tenant": task.options(tenant="globex").enqueue_many(ARGUMENTS[:JOBS]),
                "its own": task.options(tenant="acme").enqueue_many(ARGUMENTS[:JOBS]),
            }
            # Of the range of the last: its next place is nobody's.
            ids["not there"] = [each + JOBS % 1_000 + 1 for each in ids["its own"][-1:]]
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
    taken: dict[str, list[float]] = {kind: [] for kind in STATUSES}
    for number in range(pairs):
        for kind in sorted(STATUSES, reverse=number % 2 == 1):
            id_ = ids[kind][number % len(ids[kind])]
            taken[kind].append(client.get(f"jobs/{id_}{path}", STATUSES[kind]))
    return {kind: median(each) for kind, each in taken.items()}
