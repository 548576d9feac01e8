"""Making a connection, in the time that is left, and how values of its rows are read."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from psycopg import conninfo
from psycopg.adapt import Loader
from psycopg.pq import Format

from penstock.deadline import current_deadline
from penstock.storage.connection.flow import DeadlinePassed, Flow
from penstock.storage.connection.urls import ENCODING

__all__ = ["RawJson", "RawJsonBinary", "connect_by_deadline", "seconds_for_each_host"]

MOST_CONNECT_SECONDS = 10.0


class RawJson(Loader):
    """JSON stays bytes until somebody needs it: most of it is only passed on."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


class RawJsonBinary(RawJson):
    format = Format.BINARY


def connect_by_deadline(target: str, name: str, request_timeout: float) -> Flow:
    """Connect; within a call in a thread that is left behind when its time is up: names are looked up meanwhile."""

    def connect() -> Flow:
        return Flow.connect(
            target,
            autocommit=True,
            application_name=name,
            connect_timeout=seconds_for_each_host(target, request_timeout),
            client_encoding=ENCODING,
        )

    call = current_deadline()
    if call is None:
        return connect()
    made: Future[Flow] = Future()

    def run() -> None:
        try:
            connection = connect()
        except BaseException as error:
            made.set_exception(error)
        else:
            made.set_result(connection)

    threading.Thread(target=run, name="penstock-connect", daemon=True).start()
    try:
        connection = made.result(max(call.left(), 0.0))
    except TimeoutError:
        made.add_done_callback(_close_unwanted)
        raise DeadlinePassed(f"no connection could be made within {call.seconds:g} s") from None
    connection.deadline = call
    return connection


def seconds_for_each_host(target: str, request_timeout: float) -> int:
    """How long a connection is tried with each host of a URL; the driver's least are 2 seconds."""
    hosts = str(conninfo.conninfo_to_dict(target).get("host") or "").split(",")
    return max(int(min(request_timeout, MOST_CONNECT_SECONDS) / len(hosts)), 2)


def _close_unwanted(made: Future[Flow]) -> None:
    if made.exception() is None:
        made.result().close()
