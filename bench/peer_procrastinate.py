"""Procrastinate as a peer, run by its own interpreter: `peer_procrastinate.py URL set-up|enqueue|work JOBS`. It imports
nothing of this package. `enqueue` says how many seconds it took; `work` runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import procrastinate

CALL = 1_000
CONCURRENCY = 10

url, act, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))


@app.task(name="handle", queue="bench")
async def handle(**arguments: object) -> None:
    pass


async def main() -> None:
    async with app.open_async():
        if act == "set-up":
            await app.schema_manager.apply_schema_async()
        elif act == "enqueue":
            rows = json.load(sys.stdin)
            began = time.perf_counter()
            for number in range(jobs // CALL):
                low = number * CALL % len(rows)
                await handle.batch_defer_async(*rows[low : low + CALL])
            print(time.perf_counter() - began)
        else:
            await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=True)


asyncio.run(main())
