"""Which `.penstock` is meant: that of a folder or of the nearest one above it, as git finds a repository.

The search looks into neither the home folder nor another file system from below: what was made there by the way is not
everybody's. Whoever can change what is found could make its user run programs, and see the jobs: it must be a real
folder, its user's own, that nobody else may write to. Any other is an error rather than passed over, since what comes
after it would be another database than the one that stands there.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError

NAME = ".penstock"


def find_nearest(folder: Path) -> Path | None:
    """The `.penstock` of this folder, or else of the nearest one above it; None where there is none."""
    for place in _searched(folder):
        try:
            found = (place / NAME).lstat()
        except FileNotFoundError:
            continue
        except OSError:
            return None  # Whoever may not look into a folder finds nothing there, nor above.
        _refuse_unsafe(place / NAME, found)
        return place / NAME
    return None


def _searched(folder: Path) -> Iterator[Path]:
    yield folder
    home = _find_users_home()
    try:
        device = folder.stat().st_dev
        for above in () if folder == home else folder.parents:
            if above == home or above.stat().st_dev != device:
                return
            yield above
    except OSError:
        return


def _find_users_home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:  # an account that only has a number, as in some containers
        return None


def _refuse_unsafe(folder: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        problem = "is a link, and only a real folder is used"
    elif not stat.S_ISDIR(found.st_mode):
        problem = "is no folder"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to another user ({_name_of(found.st_uid)})"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"may be written to by others (chmod go-w {folder} ends that)"
    else:
        return
    raise PenstockError(
        f"{folder} {problem}: no database is looked for in it; give a URL, set PENSTOCK_URL, or work in another folder"
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
