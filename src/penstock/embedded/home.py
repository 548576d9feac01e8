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
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from penstock.embedded.account import server_account
from penstock.errors import PenstockError

RECORD = "location"
LASTING_TEMPORARY_FOLDER = Path("/var/tmp")  # noqa: S108  whatever is found there has its owner checked
# Root's own lets the server's account pass to its data folder, and no more.
OWN_MODE = 0o711 if os.geteuid() == 0 else 0o700


def find_home(folder: Path) -> Path:
    """The folder the server's files lie in; made where there is none yet."""
    folder = folder.absolute()
    try:
        make_folder(folder, OWN_MODE)
        if (folder / RECORD).exists():
            return _recorded(folder / RECORD)
        account = server_account(folder / "data")
        if not account.is_other or account.can_enter(folder):
            return folder
        if (folder / "data").exists():
            raise PenstockError(
                f"{account.name}, who runs the server for root, can no longer enter {folder}:"
                " open the folders above it again, or move it to where it can be reached"
            )
        home = _home_elsewhere(folder)
        make_folder(home, OWN_MODE)
        refuse_others(home)
        write_atomically(folder / RECORD, f"{home}\n", 0o644)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise PenstockError(f"the embedded PostgreSQL cannot use {folder}: {error.strerror}; choose another") from error
    return home


def make_folder(folder: Path, mode: int, contents: Mapping[str, Path] = MappingProxyType({})) -> None:
    """Make a folder with these copies in it where there is none, whole or not at all, whatever the umask."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
    try:
        (draft / ".gitignore").write_text("*\n")
        for name, source in contents.items():
            shutil.copytree(source, draft / name, symlinks=True, copy_function=_copy_for_all)
        for inner in draft.rglob("*/"):
            inner.chmod(0o755)
        draft.chmod(mode)
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not folder.exists():  # another process may have been first
            raise


def refuse_others(folder: Path) -> None:
    """In a folder that everybody may write to, what bears our name may still be somebody else's."""
    if folder.lstat().st_uid != os.geteuid():
        raise PenstockError(f"{folder} belongs to another user: remove it, or work in a folder that is not closed")


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Write the whole file or nothing; readers never see half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fchmod(draft.fileno(), mode)
        os.fsync(draft.fileno())
    Path(draft.name).replace(path)


def _copy_for_all(source: str, target: str) -> None:
    """Copy a file so that everybody can read it, and run it if its owner can."""
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _recorded(record: Path) -> Path:
    home = Path(record.read_text().strip())
    if not home.is_dir():
        raise PenstockError(
            f"{record} says that the data lies in {home}, which is gone:"
            f" bring it back, or remove {record.parent} to start anew"
        )
    refuse_others(home)
    return home


def _home_elsewhere(folder: Path) -> Path:
    name = "-".join(folder.parts[1:])[-100:]
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return LASTING_TEMPORARY_FOLDER / f"penstock-{name}-{digest}"
