"""Workers in any language, over HTTP: they register, poll, say that they live, and leave.

A token for some queues acts for workers of these queues only. The worker's id is long and random: whoever has it, and a
token with role work, acts for it.
"""

from __future__ import annotations

from penstock.server.call import Call
from penstock.server.caller import Caller
from penstock.server.operation import Operations
from penstock.server.problem import ProblemError
from penstock.server.remote.messages import Poll, PollAnswer, Progress, Registered, Registration, RenewAnswer

__all__ = ["remote_work"]

remote_work = Operations()
MOST_BYTES = 64 * 1024 * 1024


@remote_work.add("POST", "/workers", may="work", is_narrowed=True, status=201)
async def register_worker(call: Call, body: Registration) -> Registered:
    """Enter a worker: of which queues it runs which tasks, how many jobs at once, how long it may be silent."""
    _check_queues(call.caller, body)
    remote = await call.services.remote_workers()
    return Registered(worker=await remote.register(body), lease=remote.lease_of(body))


@remote_work.add("POST", "/workers/{worker}/poll", may="work", is_narrowed=True, most_bytes=MOST_BYTES)
async def poll(call: Call, worker: str, body: Poll) -> PollAnswer:
    """Say what has ended and take further jobs, which may be waited for.

    Numbers begin with 1 and grow by one. The same number again has the same answer, at any server: repeat a poll whose
    answer did not come. 409 `lease-lost` says that all the ends came too late; it uses up its number.
    """
    remote = await call.services.remote_workers()
    return await remote.poll(worker, body, call.caller.queues)


@remote_work.add("POST", "/workers/{worker}/renew", may="work", is_narrowed=True)
async def renew_worker(call: Call, worker: str, body: Progress) -> RenewAnswer:
    """Say that a worker lives, while it does not poll; and how far its jobs have come."""
    remote = await call.services.remote_workers()
    return await remote.renew(worker, body.progress, call.caller.queues)


@remote_work.add("DELETE", "/workers/{worker}", may="work", is_narrowed=True, status=204)
async def leave(call: Call, worker: str) -> None:
    """Let a worker leave: what it holds is handed back at once."""
    remote = await call.services.remote_workers()
    await remote.leave(worker, call.caller.queues)


def _check_queues(caller: Caller, registration: Registration) -> None:
    for queue in registration.queues:
        if caller.queues is not None and queue not in caller.queues:
            raise ProblemError("forbidden", "this token is for other queues", field=f"queues.{queue}")
