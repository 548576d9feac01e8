"""The server beside a worker in one process, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

from penstock.server.application import Application
from penstock.server.serving import address_of, make_server

__all__ = ["serving_beside"]


@contextmanager
def serving_beside(application: Application, listener: socket) -> Iterator[str]:
    """Serve in a thread; the URL."""
    server = make_server(application)
    thread = threading.Thread(target=server.run, args=([listener],), name="penstock-server", daemon=True)
    thread.start()
    try:
        yield address_of(listener).url
    finally:
        server.should_exit = True
        thread.join()
