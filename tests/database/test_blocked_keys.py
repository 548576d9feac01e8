"""Which keys wait, for what, and how many jobs behind; and how one goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned

from penstock import App, NotFound
from penstock.storage.catalogue import resize


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, on_dead="halt")


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


def test_a_queue_without_blocked_keys_says_so_and_one_that_is_not_there_is_refused(owned: Owned, app: App) -> None:
    assert app.blocked_keys("o") == []
    assert app.blocked_keys("q") == []
    with pytest.raises(NotFound):
        app.blocked_keys("nothing")


def test_a_held_and_a_halted_key_are_told_with_the_job_and_how_many_wait(owned: Owned, app: App) -> None:
    began_at = datetime.now(UTC)
    held, halted, free = (owned.key(0, 2, moves_to=(number, 3)) for number in range(3))
    jobs = owned.enqueue([held, halted, held, held, halted, free])
    owned.end(owned.lease(jobs[:1]), "retry", due_in=600)
    owned.end(owned.lease(jobs[1:2]), "failed")
    resize.resize(owned.connection, "o", 3)
    owned.enqueue([halted])
    first, second = app.blocked_keys("o")
    assert [(found.key, found.job_id, found.waiting) for found in (first, second)] == [
        (held.decode(), jobs[0], 2),
        (halted.decode(), jobs[1], 2),
    ]
    assert first.until is not None
    assert 500 < (first.until - datetime.now(UTC)).total_seconds() <= 600
    assert first.reason == f"held by job {jobs[0]}, which runs again at {first.until.isoformat(timespec='seconds')}"
    assert second.until is None
    assert second.reason == f"halted by job {jobs[1]}, which failed: retry it, or release the key"
    assert began_at <= first.since <= second.since


def test_a_dead_letter_that_halts_its_key_says_so_with_how_many_wait(owned: Owned, app: App) -> None:
    dead, *_ = owned.enqueue([b"a", b"a", b"b", b"a"])
    owned.end(owned.lease([dead]), "failed")
    told = app.explain(dead)
    assert told.reason == "finished: failed; it halts its key: retry it, or release the key"
    assert {name: told.detail[name] for name in ("halted", "jobs_behind", "may_be_more")} == {
        "halted": True, "jobs_behind": 2, "may_be_more": False,
    }  # fmt: skip
    app.release("o", "a")
    told = app.explain(dead)
    assert told.reason == "finished: failed; retry or purge it"
    assert "halted" not in told.detail


def test_a_key_that_is_both_is_told_once_as_halted(owned: Owned, app: App) -> None:
    first, second = owned.enqueue([b"a", b"a"])
    leases = owned.lease([first, second])
    owned.end(leases[:1], "retry", due_in=600)
    owned.end(leases[1:], "failed")
    (found,) = app.blocked_keys("o")
    assert (found.job_id, found.until) == (second, None)


def test_a_key_whose_dead_letter_is_gone_stays_halted_and_only_a_release_is_advised(owned: Owned, app: App) -> None:
    dead, behind = owned.enqueue([b"a", b"a"])
    owned.end(owned.lease([dead]), "failed")
    assert app.explain(behind).reason == f"behind key head {dead} (halted: a dead letter; retry it, or release the key)"
    assert app.purge("o", state="failed") == 1
    (found,) = app.blocked_keys("o")
    assert (found.key, found.job_id, found.until, found.waiting) == ("a", dead, None, 1)
    assert found.reason == f"halted by job {dead}, whose dead letter is gone: release the key"
    assert app.explain(behind).reason == f"behind key head {dead} (halted: its dead letter is gone; release the key)"
    app.release("o", "a")
    assert app.blocked_keys("o") == []


def test_one_kind_of_them_is_told_and_no_more_than_were_asked_for(owned: Owned, app: App) -> None:
    keys = sorted(owned.key(0, 2, moves_to=(number, 41)) for number in range(10))
    jobs = owned.enqueue(keys)
    owned.end(owned.lease(jobs[:6]), "failed")
    owned.connection.execute("update penstock.halted set since = since - make_interval(secs => job_id % 1024 * 10)")
    owned.end(owned.lease(jobs[6:10]), "retry", due_in=600)
    oldest_first = [key.decode() for key in reversed(keys[:6])]
    assert [found.key for found in app.blocked_keys("o", kind="halted")] == oldest_first
    assert [found.key for found in app.blocked_keys("o", kind="halted", limit=2)] == oldest_first[:2]
    assert {found.key for found in app.blocked_keys("o", kind="held")} == {key.decode() for key in keys[6:10]}
    assert len(app.blocked_keys("o", kind="held", limit=3)) == 3
    assert [found.key for found in app.blocked_keys("o", limit=7)][:6] == oldest_first
    assert len(app.blocked_keys("o", limit=7)) == 7


def test_those_behind_are_counted_among_the_first_only_and_that_is_said(
    owned: Owned, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = owned.key(0, 2), owned.key(0, 2, moves_to=(1, 3))
    (dead, *_) = owned.enqueue([key])
    owned.end(owned.lease([dead]), "failed")
    owned.enqueue([key] * 3)
    owned.enqueue([other] * 1_030)
    owned.enqueue([key] * 2)
    (found,) = app.blocked_keys("o")
    assert (found.waiting, found.may_be_more) == (5, False)
    monkeypatch.setattr(sys.modules["penstock.admin.blocked_keys"], "MOST_COUNTED", 20)
    (found,) = app.blocked_keys("o")
    assert (found.waiting, found.may_be_more) == (3, True)


def test_a_delay_blocks_no_key(owned: Owned, app: App) -> None:
    owned.enqueue([b"a"], run_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert app.blocked_keys("o") == []


@pytest.mark.parametrize("key", ["a", b"a", b"\xff"])
def test_a_released_key_goes_on_and_its_owner_is_woken(owned: Owned, app: App, key: str | bytes) -> None:
    stored = key.encode() if isinstance(key, str) else key
    (job, _) = owned.enqueue([stored, stored])
    owned.end(owned.lease([job]), "failed")
    assert [found.key for found in app.blocked_keys("o")] == ["a" if stored == b"a" else key]
    owned.connection.execute("insert into penstock.sleeper values (%s, %s)", [owned.entry.id, owned.worker])
    with owned.scene.database.connect() as listener:
        listener.execute(f"listen penstock_{owned.entry.id}".encode())
        app.release("o", key)
        assert next(listener.notifies(timeout=5)).channel == f"penstock_{owned.entry.id}"
    assert owned.halted() == []
    assert owned.scene.one("select job_id from penstock.dead") == job
    with pytest.raises(NotFound, match=r"not halted: see app\.blocked_keys\('o'\), or `penstock blocked-keys o`"):
        app.release("o", key)


def test_an_app_resizes_and_tells_how_far_it_is(owned: Owned, app: App) -> None:
    owned.enqueue([owned.key(1, 2)] * 3)
    done = app.resize("o", partitions=1)
    assert (done.queue, done.partitions, done.epoch, done.draining) == ("o", 1, 2, [("o__p1", 3)])
    assert app.resize("o", partitions=1) == done
    owned.connection.execute("delete from penstock.ready")
    assert app.resize("o", partitions=1).draining == []
    assert owned.scene.one("select state from penstock.queue_map where queue_id = %s", owned.entry.id) == "drained"
