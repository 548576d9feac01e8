"""Being woken: LISTEN on a connection of one's own, with a test whether notifications arrive at all."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.storage.connection.database import Connection
from penstock.storage.connection.flow import schema_of

__all__ = ["hears_itself", "listen", "notify", "wait_for_notification"]


def listen(connection: Connection, queues: Sequence[int]) -> None:
    """Listen for the producers of these queues."""
    for queue in queues:
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(_channel(connection, queue))))


def notify(connection: Connection, queues: Sequence[int]) -> None:
    """Wake those who listen for these queues."""
    for queue in queues:
        connection.execute("select pg_notify(%s, '')", [_channel(connection, queue)])


def hears_itself(connection: Connection, timeout: float = 2.0) -> bool:
    """Whether a notification comes back: behind a transaction pooler it does not."""
    channel = f"penstock_echo_{connection.info.backend_pid}"
    connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
    connection.execute("select pg_notify(%s, '')", [channel])
    heard = any(n.channel == channel for n in connection.notifies(timeout=timeout, stop_after=1))
    connection.execute(sql.SQL("unlisten {}").format(sql.Identifier(channel)))
    return heard


def _channel(connection: Connection, queue: int) -> str:
    return f"{schema_of(connection)}_{queue}"


def wait_for_notification(connection: Connection, timeout: float) -> bool:
    """Wait for any notification; whether one came in time."""
    return any(True for _ in connection.notifies(timeout=timeout, stop_after=1))
