"""G1, G2, G3, G13: the server's disk is full for a while; when there is room again everything goes on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from tests.fault.conftest import MIXED
from tests.fault.stage import MakeStage, eventually, times
from tests.fault.tally import brought
from tests.servers import open_folder

from penstock import App, admin, embedded
from penstock.model.check import Check
from penstock.storage.schema import migrate

# Little room, so that it is soon full; the log is kept small.
DISK = "400m"
# Within that a load has given up: half a minute for its catalogue, and half for its stage.
LOAD_SECONDS = 180.0
SETTINGS = {"max_connections": "60", "max_wal_size": "64MB", "min_wal_size": "32MB"}


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own in memory."""
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs", str(folder)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """There is no room on the disk in this block."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_g1_g2_g3_g13_nothing_is_lost_when_the_disk_is_full(make_stage: MakeStage) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(stack.enter_context(open_folder())))
        server = embedded.start(disk / ".penstock", settings=SETTINGS)
        stack.callback(server.close)
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
        stage = make_stage(server.url, **MIXED | {"request_timeout": 3.0})
        stack.callback(stage.close)
        stage.worker()
        stage.worker()
        with stage.producing_anything():
            for _ in range(times(1, 3)):
                before = stage.settles()
                eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
                with full(disk):
                    refused = stage.refused_calls()
                    eventually(lambda: stage.refused_calls() > refused, "a call was not taken", LOAD_SECONDS)  # noqa: B023
                brought("disk full or connections exhausted")
                before = stage.settles()
                eventually(lambda: stage.settles() > before, "jobs are settled again", LOAD_SECONDS)  # noqa: B023
        stage.verdict().require("a settle")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_the_doctor_says_that_a_full_disk_takes_no_writes() -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(stack.enter_context(open_folder())))
        server = embedded.start(disk / ".penstock", settings=SETTINGS)
        stack.callback(server.close)
        app = stack.enter_context(App(server.url))
        app.migrate()

        def writes() -> Check:
            (check,) = [each for each in admin.doctor(app.unchecked_databases) if each.name == "writes"]
            return check

        assert (writes().ok, writes().found) == (True, "taken")
        with full(disk):
            told = writes()
            assert not told.ok
            assert re.fullmatch(r"refused \(could not .*No space left on device\)", told.found)
            assert told.advice.endswith("make room on the server's disk")
        assert writes().ok
