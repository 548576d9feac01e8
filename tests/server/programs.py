"""`penstock serve` and `penstock up` as programs, for as long as a block lasts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["free_port", "running"]


@contextmanager
def running(
    folder: Path, url: str, *words: str, descriptors: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program, and the URL that it says it is at; ended gently when the block is over. It begins with so many
    `descriptors`, as a shell gives them to it.
    """
    limited = [] if descriptors is None else ["bash", "-c", f'ulimit -S -n {descriptors}; exec "$@"', "bash"]
    process = subprocess.Popen(
        [*limited, sys.executable, "-m", "penstock", *words],
        cwd=folder,
        env=os.environ | {"PENSTOCK_URL": url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"(http://\S+)/openapi.json", line):
                yield process, found[1]
                break
        else:
            raise AssertionError("it ended without a word of where it listens")
        process.terminate()
        rest = process.stdout.read()
        assert process.wait() == 0, rest
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def free_port() -> int:
    """One that nobody listens at just now, for a program that is to have it again when it is started anew."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
