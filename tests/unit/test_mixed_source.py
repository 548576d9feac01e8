"""Whose turn it is where a worker serves plain queues and queues with rules about keys."""

from __future__ import annotations

from typing import Any, cast

from penstock.engine.mixed_source import MixedSource
from penstock.engine.source import Wish
from penstock.storage.work.exchange import ClaimWish, Turn


class Plain:
    """Always finds something to claim."""

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        return Wish(ClaimWish([1], [1], slots, ahead))

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Any]:
        return []


class Owned:
    """Always has more that follows in a run."""

    has_runs = True

    def wish(self, slots: int, ahead: int, waiting: int, now: float) -> Wish:
        return Wish(None, [cast(Any, "what follows")])

    def learn(self, wish: Wish, turn: Turn, now: float) -> list[Any]:
        return [FULL] * 4


class Full:
    batch = None
    positions = (1,)


FULL = Full()


def test_a_run_that_goes_on_takes_no_turn_from_plain_queues() -> None:
    source = MixedSource(cast(Any, Plain()), cast(Any, Owned()))
    kinds = []
    for _ in range(6):
        wish = source.wish(4, 10, 0, 0.0)
        source.learn(wish, Turn(), 0.0)
        kinds.append("plain" if wish.claim is not None else "owned")
    assert kinds == ["owned", "plain"] * 3


def test_where_no_slot_is_free_only_runs_get_more() -> None:
    source = MixedSource(cast(Any, Plain()), cast(Any, Owned()))
    for _ in range(3):
        wish = source.wish(0, 0, 0, 0.0)
        source.learn(wish, Turn(), 0.0)
        assert wish.claim is None
