"""Producing over HTTP: one process makes JSON of 1,000 dicts and posts it, call after call, to a server on the same
machine; beside it, in turns, `enqueue_many` of the same dicts from one process. All is durable when it is answered.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

from bench.api_server import serving
from bench.bulk_enqueue import bulk_enqueue
from bench.processes import WARM_UP_CALLS
from bench.raw_copy import CALL
from bench.run import Run
from bench.server import Server
from bench.workload import ARGUMENT_BYTES, QUEUE, TASK, calls_of, declare

QUESTION = "How many jobs a second are enqueued over HTTP, against enqueue_many?"


def measure(run: Run) -> None:
    jobs = run.size(200_000, 20_000)
    posted, enqueued = [], []
    for number in run.repeats():
        if number % 2:
            posted.append(post(run.server, jobs))
        enqueued.append(bulk_enqueue(run.server, jobs)[0])
        if not number % 2:
            posted.append(post(run.server, jobs))
    run.compare("POST of 1,000", "jobs/s", posted, "enqueue_many of 1,000", enqueued, at_least=0.4)
    run.note(f"{jobs:,} jobs, {ARGUMENT_BYTES:.0f} bytes of arguments on average; 1 client, 1 server process")


def post(server: Server, jobs: int) -> float:
    """Jobs a second."""
    calls = calls_of(CALL)
    with server.database() as url:
        app, _ = declare(url)
        with app:
            app.migrate()
        with serving(url) as address:
            connection = HTTPConnection(urlsplit(address).netloc)
            for call in calls[:WARM_UP_CALLS]:
                _post(connection, call)
            began = time.perf_counter()
            for number in range(jobs // CALL):
                _post(connection, calls[number % len(calls)])
            seconds = time.perf_counter() - began
            connection.close()
        with app:
            assert app.stats(QUEUE).total_enqueued == jobs + WARM_UP_CALLS * CALL
    return jobs / seconds


def _post(connection: HTTPConnection, call: list[dict[str, object]]) -> None:
    body = json.dumps({"jobs": [{"task": TASK, "args": args} for args in call]})
    connection.request("POST", f"/api/v1/queues/{QUEUE}/jobs", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 201, text
