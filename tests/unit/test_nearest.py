"""Which folder's embedded server is meant, and which are not safe to use."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.embedded import find_nearest
from penstock.errors import PenstockError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two below it, `a` and `a/b`; the home folder is elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def make(folder: Path) -> Path:
    made = folder / ".penstock"
    made.mkdir(mode=0o700)
    return made


def test_the_folder_itself_comes_first_and_then_the_nearest_above(place: Path) -> None:
    assert find_nearest(place / "a" / "b") is None
    top = make(place)
    assert find_nearest(place / "a" / "b") == top
    nearer = make(place / "a")
    assert find_nearest(place / "a" / "b") == nearer
    own = make(place / "a" / "b")
    assert find_nearest(place / "a" / "b") == own
    assert find_nearest(place) == top


def test_the_home_folder_counts_only_for_whoever_is_in_it_and_ends_the_search(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place / "a"))
    make(place)
    assert find_nearest(place / "a" / "b") is None
    assert find_nearest(place / "a") is None
    home = make(place / "a")
    assert find_nearest(place / "a" / "b") is None
    assert find_nearest(place / "a") == home


def test_a_home_folder_that_is_given_by_a_link_is_known_all_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "link").symlink_to(place / "a")
    monkeypatch.setenv("HOME", str(place / "link"))
    make(place / "a")
    assert find_nearest(place / "a" / "b") is None


def test_an_account_without_a_home_folder_can_search(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    made = make(place)
    assert find_nearest(place / "a") == made


def test_another_file_system_ends_the_search(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place)
    top = make(place / "a")
    plain = Path.stat

    def stat(path: Path, **options: bool) -> object:
        if path == place:
            return SimpleNamespace(st_dev=-1)
        return plain(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert find_nearest(place / "a" / "b") == top
    top.rmdir()
    assert find_nearest(place / "a" / "b") is None


@pytest.mark.parametrize("start", ["a/b", "a"])
def test_a_link_a_file_and_what_others_may_write_to_are_errors_here_and_above(place: Path, start: str) -> None:
    # A good one further up does not stand in for it.
    make(place)
    found = place / "a" / ".penstock"
    found.symlink_to(place / ".penstock")
    with pytest.raises(PenstockError, match=f"{found} is a link, .*; give a URL, set PENSTOCK_URL"):
        find_nearest(place / start)
    found.unlink()
    found.symlink_to(place / "nowhere")
    with pytest.raises(PenstockError, match="is a link"):
        find_nearest(place / start)
    found.unlink()
    found.touch()
    with pytest.raises(PenstockError, match=f"{found} is no folder"):
        find_nearest(place / start)
    found.unlink()
    found.mkdir()
    for mode in (0o720, 0o702, 0o777):
        found.chmod(mode)
        with pytest.raises(PenstockError, match=f"may be written to by others .chmod go-w {found}"):
            find_nearest(place / start)
    found.chmod(0o755)
    assert find_nearest(place / start) == found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_one_that_belongs_to_another_user_is_an_error_for_root_too(place: Path) -> None:
    made = make(place)
    os.chown(made, 65_534, -1)
    with pytest.raises(PenstockError, match=f"{made} belongs to another user .nobody"):
        find_nearest(place / "a")
    os.chown(made, 12_345, -1)
    with pytest.raises(PenstockError, match=r"belongs to another user .12345"):
        find_nearest(place)


def test_another_users_is_an_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place)
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    with pytest.raises(PenstockError, match="belongs to another user"):
        find_nearest(place / "a")


def test_a_folder_that_is_gone_has_none(place: Path) -> None:
    make(place)
    assert find_nearest(place / "gone" / "too") is None
