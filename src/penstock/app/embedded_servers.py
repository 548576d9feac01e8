"""The embedded servers of an app that was given no URL: in which folder they are, whether they may be created, and what
is said of that.

Only what brings something into a database creates one; whoever looks is told that there is none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from penstock import embedded
from penstock.deadline import current_deadline
from penstock.embedded.server import Launching
from penstock.errors import InvalidInput, PenstockError
from penstock.model.checks import MOST_SHARDS

__all__ = ["EmbeddedServers"]

log = logging.getLogger("penstock")


class EmbeddedServers:
    """Where the servers of an app are, and how many are wanted at least."""

    def __init__(self, shards: int | None, *, is_allowed: object) -> None:
        self._forbidden_by = _forbidden_by(shards, is_allowed)
        self._shards = shards or 1
        # Fixed here: a program that changes its folder later keeps its servers.
        try:
            self._folder: Path | None = Path.cwd()
        except FileNotFoundError:
            self._folder = None

    @property
    def are_allowed(self) -> bool:
        return self._forbidden_by is None

    def start(self, launching: Launching, *, creates: bool) -> list[embedded.Server]:
        """Start all of them; those that are not there yet are created, or are an error."""
        if self._forbidden_by is not None:
            raise InvalidInput(
                "url",
                f"none was given, and {self._forbidden_by} forbids an embedded server instead; set PENSTOCK_URL, or "
                "give App a URL",
            )
        if self._folder is None:
            raise PenstockError(
                "the folder that this program runs in is gone: work in another, set PENSTOCK_URL, or give a URL"
            )
        home = _find_home(self._folder, creates=creates)
        # Drafts of folders, which others make or were killed over, do not count.
        found = 1 + sum(each.name.removeprefix("shard-").isdecimal() for each in home.glob("shard-*"))
        folders = [home, *(home / f"shard-{n}" for n in range(2, MOST_SHARDS))]
        creating = _announcing(home) if creates else _refuse
        servers: list[embedded.Server] = []
        with ExitStack() as undo:
            for number, folder in enumerate(folders[: max(self._shards, found)], 1):
                if number > found and not creates:
                    _refuse(folder)
                server = _start(folder, launching, creating)
                undo.callback(server.close)
                servers.append(server)
            undo.pop_all()
        return servers


def _forbidden_by(shards: int | None, is_allowed: object) -> str | None:
    """What says that there is to be no embedded server; None where there may be one."""
    if not isinstance(is_allowed, bool):
        raise InvalidInput("embedded", "must be True or False")
    if not is_allowed and shards is not None:
        raise InvalidInput("embedded_shards", "embedded=False forbids embedded servers; leave one of the two out")
    said = os.environ.get("PENSTOCK_EMBEDDED", "").strip()
    if said not in ("", "0", "1"):
        raise InvalidInput("PENSTOCK_EMBEDDED", "must be 0 (no embedded server), or 1, or not be set")
    if not is_allowed:
        return "embedded=False"
    return "PENSTOCK_EMBEDDED=0" if said == "0" else None


def _find_home(folder: Path, *, creates: bool) -> Path:
    home = embedded.find_nearest(folder)
    if home is None:
        home = folder / embedded.NAME
        if not creates:
            _refuse(home, " or in a folder above")
    elif home.parent != folder:
        log.info("using the PostgreSQL in %s, the nearest above %s", home, folder)
    return home


def _announcing(home: Path) -> Callable[[Path], None]:
    """Say, once for all that are created together, that this is done, and where."""
    announced: list[Path] = []

    def announce(data: Path) -> None:
        if not announced:
            elsewhere = "" if data.is_relative_to(home) else f" (its data in {data})"
            log.warning(
                "no URL was given: creating a PostgreSQL in %s%s, for programs that run in %s or below; to use "
                "another set PENSTOCK_URL or give a URL, to forbid this set PENSTOCK_EMBEDDED=0",
                home,
                elsewhere,
                home.parent,
            )
        announced.append(data)

    return announce


def _refuse(home: Path, or_where: str = "") -> None:
    raise PenstockError(
        f"there is no database: no URL was given, and there is none in {home}{or_where}; set PENSTOCK_URL or give a "
        "URL, or work in the folder of your app (to enqueue, to work or to migrate creates one)"
    )


def _start(folder: Path, launching: Launching, creating: Callable[[Path], None]) -> embedded.Server:
    call = current_deadline()
    try:
        seconds = None if call is None else max(call.left(), 0.0)
        return embedded.start(folder, seconds=seconds, launching=launching, creating=creating)
    except OSError as error:
        raise PenstockError(
            f"no PostgreSQL can be kept in {folder} ({error.strerror or error}): "
            "work in another folder, or set PENSTOCK_URL to a server"
        ) from error
