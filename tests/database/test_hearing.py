"""An owner that hears that something came looks at once; where it has just found some, a moment later."""

from __future__ import annotations

from itertools import count

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned

from penstock.engine import owner as engine
from penstock.engine.owner import HEARD_SECONDS, Owner

WANTED = 10
# Not a time at which anything is looked at but for what was heard.
NEVER = 3600.0


class Hearing:
    """An owner in a time of its own, which has looked at everything."""

    def __init__(self, scene: Scene, partitions: int) -> None:
        self.owned = Owned(scene, partitions=partitions)
        self._numbers = count()
        self.owner = Owner({self.owned.entry.id: {"t"}})
        self.now = NEVER
        self.owner.share(scene.connection, self.owned.worker, self.now)
        self.finds()
        self.finds()
        self.now += 1.0

    def enqueue(self) -> None:
        """A job of a key that no other has."""
        self.owned.enqueue([b"%d" % next(self._numbers)])

    def finds(self, wanted: int = WANTED) -> int:
        """How many jobs it lets start."""
        if wanted > 0:
            self.owner.look(self.owned.connection, wanted, self.now)
        else:
            self.owner.stop_reading()
        return sum(len(each.jobs) for each in self.owner.choose(wanted, 0, 0, self.now))


@pytest.fixture(params=[1, 70], ids=["one partition", "many"])
def hearing(request: pytest.FixtureRequest, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Hearing:
    for seconds in ("LOOK_SECONDS", "NEWS_SECONDS", "OTHERS_SECONDS", "SWEEP_SECONDS"):
        monkeypatch.setattr(engine, seconds, NEVER)
    return Hearing(scene, request.param)


def test_what_was_heard_of_is_found_and_nothing_else_is_looked_for(hearing: Hearing) -> None:
    hearing.enqueue()
    assert hearing.finds() == 0
    hearing.owner.note_news()
    assert hearing.finds() == 1
    hearing.now += 1.0
    hearing.enqueue()
    assert hearing.finds() == 0


def test_what_comes_right_after_is_looked_for_a_moment_later_together(hearing: Hearing) -> None:
    hearing.enqueue()
    hearing.owner.note_news()
    assert hearing.finds() == 1
    hearing.enqueue()
    hearing.owner.note_news()
    assert hearing.finds() == 0
    assert hearing.owner.patience(hearing.now) == HEARD_SECONDS
    hearing.enqueue()
    hearing.now += 2 * HEARD_SECONDS
    assert hearing.finds() == 2
    assert hearing.owner.patience(hearing.now) > HEARD_SECONDS


def test_news_wait_for_a_slot(hearing: Hearing) -> None:
    for found in (1, 0):
        hearing.enqueue()
        hearing.owner.note_news()
        assert hearing.finds() == found
    assert hearing.finds(0) == 0
    assert hearing.owner.patience(hearing.now) > HEARD_SECONDS
    hearing.now += 2 * HEARD_SECONDS
    assert hearing.finds() == 1
