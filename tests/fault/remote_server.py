"""A server process for workers far away, behind a socket where HTTP would be: a line of JSON each way.

`python -m tests.fault.remote_server URLS SOCKET LEASE`
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from typing import Any

import msgspec

from penstock import App
from penstock.errors import InvalidInput, LeaseLost, PartitionUnavailable, PenstockError, RequestTimeout, WorkerGone
from penstock.server.remote import RemoteWorkers
from penstock.server.remote.messages import Poll, Registration

STATUSES: dict[type[PenstockError], int] = {
    WorkerGone: 410,
    LeaseLost: 409,
    InvalidInput: 422,
    PartitionUnavailable: 503,
    RequestTimeout: 504,
}


async def answer(server: RemoteWorkers, call: dict[str, Any]) -> tuple[int, Any]:
    """Carry out a call; its status, and what is said."""
    try:
        match call["do"]:
            case "register":
                return 201, {"worker": await server.register(msgspec.convert(call["body"], Registration))}
            case "poll":
                raw = json.dumps(call["body"]).encode()
                return 200, await server.poll(call["worker"], msgspec.json.decode(raw, type=Poll))
            case "renew":
                return 200, await server.renew(call["worker"], call["body"]["progress"])
            case _:
                await server.leave(call["worker"])
                return 204, None
    except PenstockError as error:
        return STATUSES.get(type(error), 500), str(error)


async def serve(urls: list[str], path: str, lease: float) -> None:
    """Serve until SIGTERM."""
    app = App(shards=urls, lease=lease) if len(urls) > 1 else App(urls[0], lease=lease)
    server = RemoteWorkers(app.databases, lease_seconds=lease)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                status, said = await answer(server, json.loads(line))
                writer.write(b'{"status":%d,"said":%s}\n' % (status, msgspec.json.encode(said)))
                await writer.drain()
        writer.close()

    listener = await asyncio.start_unix_server(talk, path, limit=1 << 24)
    await stopped.wait()
    server.begin_stop()
    listener.close()
    await server.close()
    app.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1].split(), sys.argv[2], float(sys.argv[3])))
