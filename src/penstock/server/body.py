"""The body of a request: read whole up to a bound, in bounded time; or in chunks, as it comes, for a thread to read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from penstock.server.problem import ProblemError

__all__ = ["ClientGone", "read_body", "stream_body"]

# Whoever sends nothing for so long is not waited for.
LONGEST_SILENCE_SECONDS = 30.0
# A whole body has so long, however slowly it comes.
LONGEST_BODY_SECONDS = 60.0


class BodyRefused(ProblemError):
    """The body is not read to its end."""

    ends_connection = True


class ClientGone(Exception):
    """The client closed the connection before its body had come."""


async def read_body(receive: Receive, headers: Headers, most_bytes: int) -> bytes:
    """All of it."""
    _check_announced(headers, most_bytes)
    try:
        async with asyncio.timeout(LONGEST_BODY_SECONDS):
            chunks, size = [], 0
            async for chunk in stream_body(receive):
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                chunks.append(chunk)
            return b"".join(chunks)
    except TimeoutError:
        raise BodyRefused(
            "request-timeout",
            f"the body did not come within {LONGEST_BODY_SECONDS:g} s; nothing was done, send it again",
        ) from None


async def stream_body(receive: Receive) -> AsyncIterator[bytes]:
    """Its chunks, as they come; `ClientGone` where it is cut."""
    while True:
        try:
            async with asyncio.timeout(LONGEST_SILENCE_SECONDS):
                message: Message = await receive()
        except TimeoutError:
            raise BodyRefused(
                "request-timeout", f"nothing of the body came for {LONGEST_SILENCE_SECONDS:g} s; send it again"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


def _check_announced(headers: Headers, most_bytes: int) -> None:
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:19]) > most_bytes:
        raise _too_large(most_bytes)


def _too_large(most_bytes: int) -> ProblemError:
    return BodyRefused(
        "too-large", f"the body is larger than {most_bytes} bytes; send less at a time, or PUT it as a load"
    )
