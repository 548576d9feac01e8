"""A body on its way from the event loop, where it arrives, to a thread that reads it, a few pieces ahead at most.

So a body of any length takes little memory: while the reader is busy nothing more is taken from the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from penstock.server.body import ClientGone
from penstock.server.threads import CallThreads

__all__ = ["read_in_thread"]

T = TypeVar("T")
MOST_PIECES = 8
PIECE_BYTES = 256 * 1024
# So long the rest of a body may come that nobody reads.
REST_SECONDS = 5.0


async def read_in_thread(
    threads: CallThreads, caller: str, body: AsyncIterator[bytes], read: Callable[[Iterator[bytes]], T]
) -> T:
    """Have a caller's body read in a thread; its pieces are given as they come. Where it is cut the reader hears that.

    A reader that is done before the end of the body, or refuses it, is not kept waiting for the rest.
    """
    pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(MOST_PIECES)
    loop = asyncio.get_running_loop()

    def iterate() -> Iterator[bytes]:
        while True:
            piece = asyncio.run_coroutine_threadsafe(pieces.get(), loop).result()
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    reading = asyncio.ensure_future(threads.run(lambda: read(iterate()), caller))
    feeding = asyncio.ensure_future(_feed(body, pieces))
    try:
        await asyncio.wait((reading, feeding), return_when=asyncio.FIRST_COMPLETED)
        # The feeder ends first, and has said so to the reader; or the reader does, and wants no more.
        if not feeding.done():
            await _pass_over(pieces, feeding)
        return await reading
    finally:
        feeding.cancel()
        if not reading.done():
            # Whoever waits here is ended itself: the reader has to hear it, and end.
            while not pieces.empty():
                pieces.get_nowait()
            pieces.put_nowait(ClientGone())


async def _pass_over(pieces: asyncio.Queue[bytes | BaseException | None], feeding: asyncio.Future[None]) -> None:
    """Let the rest come in for a while, unread: a connection that is closed before it does may lose the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            while not feeding.done():
                getting = asyncio.ensure_future(pieces.get())
                await asyncio.wait((getting, feeding), return_when=asyncio.FIRST_COMPLETED)
                getting.cancel()


async def _feed(body: AsyncIterator[bytes], pieces: asyncio.Queue[bytes | BaseException | None]) -> None:
    gathered = bytearray()
    try:
        async for chunk in body:
            gathered += chunk
            if len(gathered) >= PIECE_BYTES:
                await pieces.put(bytes(gathered))
                gathered.clear()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        await pieces.put(error)
    else:
        if gathered:
            await pieces.put(bytes(gathered))
        await pieces.put(None)
