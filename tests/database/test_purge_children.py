"""A purge ends what waited when it began, and not what it lets go itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.database.conftest import Scene
from tests.database.ledger import check

from penstock.model.job_state import State
from penstock.storage.repair.control import purge


def test_a_child_that_a_purge_lets_go_is_not_purged_by_it(scene: Scene) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    parents = scene.enqueue(2, run_at=later)
    (heir,) = scene.enqueue(1, after=parents[:1], run_at=later, on_parent_failure="run")
    (orphan,) = scene.enqueue(1, after=parents[:1], run_at=later)
    assert purge(scene.connection, scene.queue.partition_ids, State.SCHEDULED) == 2
    ledger = check(scene.connection)
    assert ledger.of("scheduled") == {heir}
    assert ledger.of("cancelled") == {*parents, orphan}
