"""A process of the long run: a pytest that runs the tests it is told to, each as often and with the seed it is told.

Its server and the process its workers are forked from stay as they are between rounds; everything else is a test's own.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import pytest
from _pytest.runner import runtestprotocol
from tests.fault.ledger import Round
from tests.fault.tally import tally

__all__ = ["WATCHED_SECONDS", "Collected", "Told"]

# A round that takes longer is given up, and where it stands is written down. On a busy machine some take minutes that
# are over in twenty seconds on an idle one.
WATCHED_SECONDS = 1800


class Told(msgspec.Struct):
    """Which round is next."""

    test: str
    seed: int


class Collected(msgspec.Struct, tag="collected"):
    """The tests there are."""

    tests: list[str]


class _Rounds:
    """The plugin."""

    def __init__(self, conversation: socket.socket, folder: Path) -> None:
        self._conversation = conversation
        self._folder = folder
        self._tmp_path: Path | None = None
        self._stacks: TextIO = (folder / f"stacks-{os.getpid()}.txt").open("w")

    @pytest.fixture(autouse=True)
    def _note_folder(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._say(Collected(list(items)))
        with self._conversation.makefile("rb") as lines:
            for line in lines:
                told = msgspec.json.decode(line, type=Told)
                self._say(self._round(items[told.test], told.seed))
        return True

    def _round(self, item: pytest.Item, seed: int) -> Round:
        self._tmp_path = None
        tally.clear()
        os.environ["PENSTOCK_FAULT_SEED"] = str(seed)
        faulthandler.dump_traceback_later(WATCHED_SECONDS - 20, file=self._stacks)
        began = time.monotonic()
        # Whoever is next needs of what is set up only what is the session's.
        reports = runtestprotocol(item, log=False, nextitem=cast(pytest.Item, item.session))
        seconds = time.monotonic() - began
        faulthandler.cancel_dump_traceback_later()
        failed = [report for report in reports if report.failed]
        if failed:
            self._keep(f"{seed}", failed)
        if self._tmp_path is not None:
            shutil.rmtree(self._tmp_path, ignore_errors=True)
        found = "; ".join(_in_a_line(report) for report in failed)
        return Round(item.nodeid, seed, round(seconds, 2), dict(tally.faults), dict(tally.sometimes), found)

    def _keep(self, name: str, failed: list[pytest.TestReport]) -> None:
        """What is left of a failed round: its history, what its workers said, and what pytest says."""
        folder = self._folder / name
        if self._tmp_path is not None and self._tmp_path.exists():
            shutil.copytree(self._tmp_path, folder, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        folder.mkdir(exist_ok=True)
        (folder / "failure.txt").write_text("\n\n".join(f"{each.longreprtext}\n{_said(each)}" for each in failed))

    def _say(self, what: Collected | Round) -> None:
        self._conversation.sendall(msgspec.json.encode(what) + b"\n")


def _said(report: pytest.TestReport) -> str:
    return "\n".join(f"--- {title}\n{text}" for title, text in report.sections)


def _in_a_line(report: pytest.TestReport) -> str:
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None else report.longreprtext
    return f"{report.when}: " * (report.when != "call") + " ".join(text.split())[:400]


def main() -> None:
    conversation, folder, *arguments = sys.argv[1:]
    plugin = _Rounds(socket.socket(fileno=int(conversation)), Path(folder))
    options = ["-p", "no:cacheprovider", "-qq", f"--basetemp={folder}/tmp-{os.getpid()}"]
    sys.exit(pytest.main([*options, *arguments], plugins=[plugin]))


if __name__ == "__main__":
    main()
