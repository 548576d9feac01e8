"""PgQueuer as a peer, run by its own interpreter: `peer_pgqueuer.py URL set-up|enqueue|enqueue-singly|work JOBS`. It
imports nothing of this package. `enqueue` says how many seconds it took; `enqueue-singly` does so for each line that
tells it from where to take so many jobs; `work` runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

CALL = 1_000
BATCH = 500

url, act, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def main() -> None:
    driver = AsyncpgDriver(await asyncpg.connect(url))
    queries = Queries(driver)
    if act == "set-up":
        await queries.install()
    elif act == "enqueue":
        rows = json.load(sys.stdin)
        began = time.perf_counter()
        for number in range(jobs // CALL):
            low = number * CALL % len(rows)
            payloads = [json.dumps(row).encode() for row in rows[low : low + CALL]]
            await queries.enqueue(["handle"] * CALL, payloads, [0] * CALL)
        print(time.perf_counter() - began)
    elif act == "enqueue-singly":
        rows = json.loads(sys.stdin.readline())
        for line in sys.stdin:
            low = int(line)
            began = time.perf_counter()
            for row in rows[low : low + jobs]:
                await queries.enqueue("handle", json.dumps(row).encode(), 0)
            print(time.perf_counter() - began, flush=True)
    else:
        queuer = PgQueuer(driver)

        @queuer.entrypoint("handle")
        async def handle(job: Job) -> None:
            json.loads(job.payload or b"{}")

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
        await queuer.run(batch_size=BATCH)


uvloop.run(main())
