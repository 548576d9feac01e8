"""The HTTP API of a database as a process of its own, for as long as a block lasts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["serving"]


@contextmanager
def serving(url: str) -> Iterator[str]:
    """Where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--url", url, "--port", "0", "--log-level", "error"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.match(r"(http://\S+)/api/v1", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait()
