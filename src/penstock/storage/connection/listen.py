"""Being woken: LISTEN on a connection of one's own, with a test whether notifications arrive at all."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.storage.connection.database import Connection
from penstock.storage.connection.flow import schema_of
from penstock.storage.connection.queries import fill, query

__all__ = [
    "hears_itself",
    "listen",
    "listen_to",
    "notify",
    "notify_channel",
    "wait_for_notification",
    "wait_for_queues",
]


def listen(connection: Connection, queues: Sequence[int]) -> None:
    """Listen for the producers of these queues."""
    for queue in queues:
        listen_to(connection, _channel(connection, queue))


def notify(connection: Connection, queues: Sequence[int]) -> None:
    """Wake those who listen for these queues."""
    for queue in queues:
        notify_channel(connection, _channel(connection, queue))


def hears_itself(connection: Connection, timeout: float = 2.0) -> bool:
    """Whether a notification comes back: behind a transaction pooler it does not."""
    channel = f"penstock_echo_{connection.info.backend_pid}"
    listen_to(connection, channel)
    notify_channel(connection, channel)
    heard = any(n.channel == channel for n in connection.notifies(timeout=timeout, stop_after=1))
    connection.execute(fill("unlisten", channel=sql.Identifier(channel)))
    return heard


def listen_to(connection: Connection, channel: str) -> None:
    """Listen on one channel."""
    connection.execute(fill("listen", channel=sql.Identifier(channel)))


def notify_channel(connection: Connection, channel: str) -> None:
    """Wake those who listen on one channel."""
    connection.execute(query("notify"), {"channel": channel})


def _channel(connection: Connection, queue: int) -> str:
    return f"{schema_of(connection)}_{queue}"


def wait_for_notification(connection: Connection, timeout: float) -> bool:
    """Wait for any notification; whether one came in time."""
    return any(True for _ in connection.notifies(timeout=timeout, stop_after=1))


def wait_for_queues(connection: Connection, timeout: float) -> tuple[set[int], bool]:
    """Wait for any notification; the queues whose producers gave one, and whether one came on another channel."""
    prefix = _channel(connection, 0)[:-1]
    channels = {notice.channel for notice in connection.notifies(timeout=timeout, stop_after=1)}
    numbers = {channel.removeprefix(prefix) for channel in channels if channel.startswith(prefix)}
    queues = {int(number) for number in numbers if number.isdecimal()}
    return queues, len(queues) < len(channels)
