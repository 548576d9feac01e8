"""G3, G5, G9: jobs that Spark runs go on after their driver was killed with everything it started."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import psycopg
from tests.fault.spark_processor import LEASE_SECONDS
from tests.fault.stage import times
from tests.fault.tally import brought, came_to

from penstock import App

KEYS, JOBS = 200, 8_000


def test_g3_g5_g9_jobs_of_a_killed_driver_run_again_in_order_and_end_once(database_url: str, seed: int) -> None:
    with App(database_url, lease=LEASE_SECONDS) as app:

        @app.queue("updates", partitions=2, order="key").task(key="customer")
        def update(customer: str, number: int) -> list[int]:
            began = time.monotonic_ns()
            return [began, time.monotonic_ns()]

        ids: list[int] = []
        chosen = random.Random(seed)
        held = 0
        for _ in range(times(1, 3)):
            done = len(ids)
            ids += update.enqueue_many([{"customer": f"c-{n % KEYS}", "number": n} for n in range(JOBS)])
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.spark_processor", database_url],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                enough = done + chosen.randint(1, JOBS // 2)
                while app.stats("updates").total_completed < enough:
                    assert driver.poll() is None, "the driver ended by itself"
            finally:
                # The driver, its JVM, and the executors' processes: all of the session that begins here.
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
            brought("Spark task, executor or driver lost")
            held += sum(worker.running for worker in app.workers())
            assert app.stats("updates").total_completed < len(ids)
            while app.stats("updates").total_completed < len(ids):
                app.work(until_idle=True)
        # Any kill may come between two batches.
        came_to({"a job held by a driver that was killed": held})
        with psycopg.connect(database_url) as connection:
            rows = connection.execute("select job_id, result from penstock.finished_job where outcome = 0").fetchall()
        ended: dict[int, Any] = dict(rows)
        assert len(rows) == len(ended) == len(ids)
        for key in range(KEYS):
            runs = [ended[job] for job in ids[key::KEYS]]
            assert all(before[1] <= after[0] for before, after in pairwise(runs))
