"""The token of this machine: `penstock up` makes one at each start, for programs of whoever started it.

It lies in `.penstock/token`, which nobody else may read, lives as long as the program, and is in no database: so it is
no token that closes the door to whoever calls from this machine without one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["machine_token"]


@contextmanager
def machine_token(home: Path) -> Iterator[str]:
    """A token that is written there for as long as the block lasts."""
    token, path = f"penstock_{secrets.token_urlsafe(32)}", home / "token"
    draft = home / f"token.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token}\n")
    draft.replace(path)
    try:
        yield token
    finally:
        with suppress(OSError):
            if path.read_text().strip() == token:
                path.unlink()
