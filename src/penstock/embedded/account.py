"""Whom the server runs as.

PostgreSQL refuses to run as root. For root it runs as an account that exists already, `postgres` or else `nobody`;
for everybody else it runs as themselves. Root's files are often closed to such an account, so whether it can reach
a path is tried out, as that account, rather than worked out from permission bits.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import PenstockError


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    is_other: bool
    """True where the server runs as somebody else than this process."""

    def run(self, command: Sequence[str | Path], given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as this account and wait for it; its output is one text, errors included."""
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        # An inherited PGDATA, PGPORT or PGOPTIONS is about another server.
        environment = {name: value for name, value in environment.items() if not name.startswith("PG")}
        return subprocess.run(
            command,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=environment,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
            # A Ctrl-C meant for the program in the terminal must not end a half-made data folder's initdb on its own.
            start_new_session=True,
        )

    def can_enter(self, folder: Path) -> bool:
        return self._tries('cd -- "$1"', folder)

    def can_execute(self, program: Path) -> bool:
        return self._tries('test -x "$1" && "$1" --version', program)

    def own(self, path: Path, mode: Literal[0o600, 0o700]) -> None:
        """Make a file or folder of ours this account's alone."""
        path.chmod(mode)
        if self.is_other:
            os.chown(path, self.uid, self.gid)

    def _tries(self, script: str, path: Path) -> bool:
        if not self.is_other:
            return True
        return self.run(["/bin/sh", "-c", script, "sh", path]).returncode == 0


def server_account(data: Path) -> Account:
    """The account for the server on this data folder: its owner where it exists."""
    uid = os.geteuid()
    if uid != 0:
        return Account(name=str(uid), uid=uid, gid=os.getegid(), is_other=False)
    if data.exists() and data.stat().st_uid != 0:
        owner = data.stat()
        return Account(name=str(owner.st_uid), uid=owner.st_uid, gid=owner.st_gid, is_other=True)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, is_other=True)
    raise PenstockError(
        "PostgreSQL does not run as root, and there is no account postgres or nobody to run it: run as another user"
    )
