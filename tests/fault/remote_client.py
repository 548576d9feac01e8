"""A worker far away, as a process: it makes every poll twice, the second time at another server, and notes what it runs
and what it is told.

`python -m tests.fault.remote_client HISTORY QUEUES LEASE SEED SOCKET…` It imports nothing of Penstock.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.judge.history import Recorder

# What it exits with where a poll and its repeat were answered differently.
TOLD_TWO_THINGS = 3
WORK_SECONDS = 0.002


class Client:
    """One worker after another: a new one where the last was declared dead."""

    def __init__(self, history: str, queues: Any, lease: float, seed: int, sockets: Sequence[str]) -> None:
        self._recorder = Recorder(Path(history))
        self._registration = {"name": "far", "queues": queues, "lease": lease, "concurrency": 6}
        self._lease = lease
        self._random = random.Random(seed)
        self._sockets = list(sockets)
        self._worker = ""
        self._number = 0

    async def run(self) -> None:
        """Work until it is killed."""
        ends: list[dict[str, Any]] = []
        while True:
            if not self._worker:
                ends = []
                status, said = await self._call("register", self._registration, self._random.choice(self._sockets))
                if status != 201:
                    await asyncio.sleep(0.02)
                    continue
                self._worker, self._number = said["worker"], 1
            sent_at = time.monotonic()
            body = {"number": self._number, "ends": ends, "want": self._random.choice([0, 1, 4]), "wait": 0.3}
            status, said = await self._poll_twice(body)
            if status == 410:
                self._worker = ""
            elif status in (200, 409):
                self._note_told(ends, said["lost"] if status == 200 else ends)
                self._number += 1
                ends = await self._work(said["jobs"], sent_at) if status == 200 else []
            else:
                await asyncio.sleep(0.02)

    async def _poll_twice(self, body: dict[str, Any]) -> tuple[int, Any]:
        """At two servers, in any order or at once; what either says, or that neither does."""
        first, second = self._random.sample(self._sockets, 2)
        pause = self._random.choice([0.0, 0.0, 0.01, 0.1])

        async def again() -> tuple[int, Any]:
            await asyncio.sleep(pause)
            return await self._call("poll", body, second)

        calls = [asyncio.create_task(self._call("poll", body, first)), asyncio.create_task(again())]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        # The other has a moment to say the same: one that is stopped says nothing.
        await asyncio.wait(calls, timeout=0.3)
        answers = [call.result() for call in calls if call.done()]
        for call in calls:
            call.cancel()
        told = [(status, said) for status, said in answers if status in (200, 409)]
        if len(told) == 2 and _gist(*told[0]) != _gist(*told[1]):
            print(f"poll {body} was answered by {told[0]} and by {told[1]}", file=sys.stderr, flush=True)  # noqa: T201
            sys.exit(TOLD_TWO_THINGS)
        if any(status == 422 for status, _ in answers):
            print(f"poll {body} was refused: {answers}", file=sys.stderr, flush=True)  # noqa: T201
            sys.exit(TOLD_TWO_THINGS)
        gone = [(status, said) for status, said in answers if status == 410]
        return (told or gone or answers)[0]

    async def _call(self, do: str, body: Any, path: str) -> tuple[int, Any]:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
            writer.write(json.dumps({"do": do, "worker": self._worker, "body": body}).encode() + b"\n")
            # A server that is stopped says nothing.
            line = await asyncio.wait_for(reader.readline(), 5.0)
            writer.close()
        except (OSError, TimeoutError):
            return 0, None
        if not line:
            return 0, None
        answer = json.loads(line)
        return int(answer["status"]), answer["said"]

    def _note_told(self, ends: Sequence[dict[str, Any]], lost: Sequence[dict[str, Any]]) -> None:
        gone = {(each["job"], each["lease"]) for each in lost}
        for end in ends:
            if (end["job"], end["lease"]) in gone:
                self._recorder.note("settle", "fail", job=int(end["job"]))
            elif end["end"] == "succeeded":
                self._recorder.note("settle", "ok", job=int(end["job"]))

    async def _work(self, jobs: Sequence[dict[str, Any]], sent_at: float) -> list[dict[str, Any]]:
        """Run jobs one after the other, while its row certainly lives; how they ended."""
        ends: list[dict[str, Any]] = []
        for job in jobs:
            named = {"job": job["id"], "lease": job["lease"]}
            if time.monotonic() > sent_at + self._lease * 0.9:
                ends.append({**named, "end": "released"})
                continue
            facts: dict[str, Any] = {
                "label": job["args"]["label"],
                "job": int(job["id"]),
                "lease": int(job["lease"].split(".")[1]),
                "attempt": job["attempt"],
            }
            self._recorder.note("run", "invoke", **facts)
            await asyncio.sleep(WORK_SECONDS)
            if job["attempt"] <= job["args"].get("fails", 0):
                self._recorder.note("run", "fail", **facts)
                ends.append({**named, "end": "retry", "error": "on purpose", "after": 0.02})
            else:
                self._recorder.note("run", "ok", **facts)
                ends.append({**named, "end": "succeeded", "result": job["args"]["label"]})
        return ends


def _gist(status: int, said: Any) -> Any:
    """What both have to say alike."""
    return (status, said["jobs"], said["lost"]) if status == 200 else status


if __name__ == "__main__":
    history, queues, lease, seed, *sockets = sys.argv[1:]
    asyncio.run(Client(history, json.loads(queues), float(lease), int(seed), sockets).run())
