"""The HTTP API of a database as a process of its own, for as long as a block lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["serving"]


@contextmanager
def serving(url: str) -> Iterator[str]:
    """Where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--url", url, "--port", "0", "--log-level", "error", "--json"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    )
    try:
        assert process.stdout is not None
        # An object over several lines, and nothing after it.
        told = "".join(iter(process.stdout.readline, "}\n")) + "}"
        yield json.loads(told)["dashboard"].rstrip("/")
    finally:
        process.terminate()
        process.wait()
