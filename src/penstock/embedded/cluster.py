"""The data folder, made once, and the settings the server runs with.

The data folder is made under another name and renamed when it is whole, so that a process killed in the middle leaves
nothing that looks like one. Durability stays as PostgreSQL has it: fsync, synchronous_commit and full_page_writes on.
The settings are a file rather than options of the command line, so that ALTER SYSTEM still has the last word.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.embedded.account import Account
from penstock.embedded.binaries import Binaries
from penstock.embedded.home import write_atomically
from penstock.errors import PenstockError

ROLE = DATABASE = "penstock"
MEBIBYTE = 1024 * 1024


def make_cluster(home: Path, binaries: Binaries, account: Account) -> None:
    """Make the data folder where there is none; refuse one of another major version."""
    data = home / "data"
    if data.exists():
        try:
            made_by = int((data / "PG_VERSION").read_text())
        except FileNotFoundError:
            raise PenstockError(f"{data} is no whole data folder: restore it, or remove {home} to start anew") from None
        if made_by != binaries.version:
            raise PenstockError(
                f"{data} was made by PostgreSQL {made_by} and {binaries.folder} holds PostgreSQL {binaries.version}:"
                f" set PENSTOCK_POSTGRES_BIN to the bin folder of a PostgreSQL {made_by}, or move {home} away"
            )
        return
    password = home / "password"
    if not password.exists():
        write_atomically(password, secrets.token_urlsafe(24), 0o600)
    draft = home / "data.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    account.own(draft, 0o700)
    _initialise(draft, password, binaries, account)
    draft.rename(data)


def _initialise(draft: Path, password: Path, binaries: Binaries, account: Account) -> None:
    initdb: list[str | Path] = [binaries.folder / "initdb", "--pgdata", draft]
    with tempfile.NamedTemporaryFile("w", dir=draft.parent, prefix="password.") as shown:
        # The password stays its owner's: the server's account gets to see a copy for as long as initdb runs.
        account.own(Path(shown.name), 0o600)
        shown.write(password.read_text())
        shown.flush()
        options = ["--username", ROLE, "--auth", "scram-sha-256", "--pwfile", shown.name]
        _must(account, [*initdb, *options, "--encoding", "UTF8", "--no-locale", "--no-sync"])
    postgres: list[str | Path] = [binaries.folder / "postgres", "--single", "-F", "-D", draft]
    _must(account, [*postgres, "template1"], f"CREATE DATABASE {DATABASE};\n")
    _must(account, [*initdb, "--sync-only"])


def _must(account: Account, command: list[str | Path], given: str = "") -> None:
    done = account.run(command, given)
    if done.returncode != 0 or "ERROR:" in done.stdout:
        raise PenstockError(f"{Path(command[0]).name} could not make the data folder: {done.stdout.strip()}")


def write_settings(home: Path, extra: Mapping[str, str]) -> None:
    settings = {
        "listen_addresses": "127.0.0.1",
        # Loopback only: a socket's path is limited to about a hundred bytes, a project's is not.
        "unix_socket_directories": "",
        "password_encryption": "scram-sha-256",
        "max_connections": "200",
        "shared_buffers": f"{_shared_buffers_megabytes()}MB",
        "max_wal_size": "4GB",
        # Queue statements are short: compiling one costs more than it saves.
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",
        "log_line_prefix": "%m [%p] ",
        **extra,
    }
    lines = ["# Written at each launch. To change a setting for good: ALTER SYSTEM SET name = value\n"]
    lines += ["{} = '{}'\n".format(name, value.replace("'", "''")) for name, value in settings.items()]
    write_atomically(home / "postgresql.conf", "".join(lines), 0o644)


def _shared_buffers_megabytes() -> int:
    """A sixteenth of the machine's memory, between 128 MB and 1 GB."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(128, min(1024, memory // 16 // MEBIBYTE))
