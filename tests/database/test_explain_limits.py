"""Why a job waits where its partition has a limit or a rate, and the figures that tell of them."""

from __future__ import annotations

import re

from tests.database.conftest import Scene
from tests.database.test_gate import use

from penstock import admin
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.inspect.stats import read_stats


def test_a_full_limit_names_the_jobs_that_hold_it(scene: Scene) -> None:
    use(scene, limit=2)
    ids = scene.enqueue(5)
    scene.claim(10)
    explanation = admin.explain(scene.databases, ids[4])
    assert explanation.reason == f"limit 2 of 2: held by {ids[0]}, {ids[1]}"
    assert explanation.detail["held_by"] == ids[:2]
    assert (explanation.detail["limit"], explanation.detail["jobs_before"]) == (2, 2)


def test_of_a_large_limit_some_holders_are_named(scene: Scene) -> None:
    use(scene, limit=12)
    ids = scene.enqueue(20)
    scene.claim(20)
    assert admin.explain(scene.databases, ids[15]).reason == (
        f"limit 12 of 12: held by {', '.join(map(str, ids[:10]))}, ..."
    )


def test_a_limit_that_has_room_is_not_the_reason(scene: Scene) -> None:
    use(scene, limit=3)
    ids = scene.enqueue(5)
    scene.claim(2)
    assert "limit" not in admin.explain(scene.databases, ids[2]).reason


def test_a_rate_says_when_the_next_may_start(scene: Scene) -> None:
    use(scene, rate="2/m")
    ids = scene.enqueue(5)
    assert "rate" not in admin.explain(scene.databases, ids[1]).reason
    scene.claim(1)
    explanation = admin.explain(scene.databases, ids[1])
    assert re.fullmatch(r"rate 2/m: the next may start in \d\d\.\d s", explanation.reason)
    assert 0 < explanation.detail["opens_in"] <= 30


def test_a_paused_queue_is_paused_first(scene: Scene) -> None:
    use(scene, limit=1)
    ids = scene.enqueue(2)
    scene.claim(1)
    scene.connection.execute("update penstock.queue set is_paused = true")
    assert admin.explain(scene.databases, ids[1]).reason.startswith("paused")


def test_figures_tell_the_limit_and_the_owner_of_each_partition(scene: Scene) -> None:
    queue = use(scene, order="key", limit=3, partitions=2)
    scene.connection.execute(
        "update penstock.partition set owner_id = %s where id = %s", [scene.worker, queue.partition_ids[1]]
    )
    stats = read_stats(scene.connection, queue)
    assert (stats.limit, [part.limit for part in stats.partitions]) == (6, [3, 3])
    name = scene.one("select name from penstock.worker where id = %s", scene.worker)
    assert [part.owner for part in stats.partitions] == [None, name]


def test_figures_tell_of_removed_partitions_only_while_they_hold_jobs(scene: Scene) -> None:
    use(scene, partitions=3)
    scene.enqueue(2, partition=2)
    scene.connection.execute("update penstock.queue set partitions = 1")
    queue = find_queue(scene.connection, "gated")
    assert [part.name for part in read_stats(scene.connection, queue).partitions] == ["gated", "gated__p2"]
    scene.succeed(scene.claim(10))
    assert [part.name for part in read_stats(scene.connection, queue).partitions] == ["gated"]
    assert read_stats(scene.connection, queue).total_completed == 2
