"""The thread that moves permits: a queue that fails is not in the way of the others."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.shards.permits import Allotter
from penstock.storage.work import permits
from penstock.upkeep.allotting import Allotting
from penstock.upkeep.troubles import Troubles


def test_a_queue_that_fails_is_not_in_the_way_of_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allotted = threading.Event()

    def allot(_: Allotter, queue: int, __: int | None) -> int:
        if queue == 1:
            raise ValueError("queue 1 cannot be allotted")
        allotted.set()
        return 0

    monkeypatch.setattr(Allotter, "allot", allot)
    monkeypatch.setattr(permits, "queues_with_totals", lambda _: {1: None, 2: None})
    monkeypatch.setattr(permits, "take_duty", lambda *_, **__: True)
    lead = SimpleNamespace(ask=lambda act, **_: act(None))
    databases = cast("Any", SimpleNamespace(lead=lead, read=lambda act: act(None)))
    troubles = Troubles(lambda *_: None)
    thread = Allotting(databases, troubles)
    thread.begin()
    try:
        assert allotted.wait(60)
    finally:
        thread.stop()
    assert troubles.errors == {"allot": "queue 1 cannot be allotted"}
