"""Where a server's files lie.

Normally in the folder that was asked for. Where root asks for a folder that the server's account cannot enter, they
lie under the system's lasting temporary folder, in a folder named after the absolute path, and the file `location`
in the folder asked for records where. No folder that was there before has its permissions changed.

    data/                  the data folder; its owner is the account the server runs as
    postgresql.conf        the settings, written anew at each launch
    postgresql.log         what server and supervisor say
    password, port         what makes the URL; both stay the same over restarts
    clients.lock           shared by every client; whoever gets it alone knows that the last one is gone
    start.lock             one starter at a time
    supervisor.lock        held by a supervisor for as long as it lives
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from penstock.embedded.account import server_account
from penstock.embedded.binaries import LASTING_TEMPORARY_FOLDER
from penstock.errors import PenstockError

RECORD = "location"


def find_home(folder: Path) -> Path:
    """The folder the server's files lie in; made where there is none yet."""
    folder = folder.absolute()
    try:
        _make(folder)
        record = folder / RECORD
        if record.exists():
            return _recorded(record)
        account = server_account(folder / "data")
        if not account.is_other or account.can_enter(folder):
            return folder
        home = _home_elsewhere(folder)
        _make(home)
        if home.stat().st_uid != os.geteuid():
            raise PenstockError(f"{home} belongs to another user: remove it, or work in a folder that is not closed")
        write_atomically(record, f"{home}\n", 0o644)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise PenstockError(
            f"the embedded PostgreSQL cannot use {folder}: {error.strerror}; choose another folder"
        ) from error
    return home


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Write the whole file or nothing; readers never see half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _make(folder: Path) -> None:
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Root's folder lets the server's account pass to its data folder, and no more.
    folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")


def _recorded(record: Path) -> Path:
    home = Path(record.read_text().strip())
    if not home.is_dir():
        raise PenstockError(
            f"{record} says that the data lies in {home}, which is gone:"
            f" bring it back, or remove {record.parent} to start anew"
        )
    return home


def _home_elsewhere(folder: Path) -> Path:
    name = "-".join(folder.parts[1:])[-100:]
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return LASTING_TEMPORARY_FOLDER / f"penstock-{name}-{digest}"
