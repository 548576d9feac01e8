"""The order in which jobs are given out, also where they went back or came late."""

from __future__ import annotations

from tests.database.conftest import Scene

from penstock.storage.upkeep.sweep import rescue


def claimed(scene: Scene, slots: int = 1, ahead: int = 0) -> list[int]:
    return [job for _, job in scene.claim(slots, ahead)]


def test_what_was_handed_back_goes_before_the_rest_of_its_range(scene: Scene) -> None:
    ids = scene.enqueue(10)
    scene.end(scene.claim(5), "release")
    assert [claimed(scene) for _ in range(10)] == [[job] for job in ids]


def test_what_was_handed_back_in_pieces_keeps_its_order(scene: Scene) -> None:
    ids = scene.enqueue(12)
    first, second, third = scene.claim(3), scene.claim(3), scene.claim(3)
    for held in (second, third, first):
        scene.end(held, "release")
    assert [claimed(scene, 2) for _ in range(6)] == [ids[n : n + 2] for n in range(0, 12, 2)]


def test_a_rescued_part_of_a_range_goes_before_the_rest_of_it(scene: Scene) -> None:
    ids = scene.enqueue(6)
    scene.claim(2)
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")
    rescue(scene.connection)
    scene.worker = scene.register()
    assert [claimed(scene) for _ in range(6)] == [[job] for job in ids]


def test_a_job_written_by_a_transaction_that_began_early_does_not_pass_those_before_it(scene: Scene) -> None:
    first, second, third = scene.enqueue(1)[0], scene.enqueue(1)[0], scene.enqueue(1)[0]
    other = scene.enqueue(1, priority=4)[0]
    for seconds, job in ((90, first), (10, second), (88, third), (25, other)):
        scene.connection.execute(
            "update penstock.ready set ready_at = now() - make_interval(secs => %s) where range = %s",
            [seconds, job // 1024],
        )
    # A priority is a minute: after the first, the other is next; the third must not come along with the first.
    assert claimed(scene, 2) == sorted([first, other])
    assert [claimed(scene) for _ in range(2)] == [[second], [third]]


def test_a_waiting_job_rises_one_priority_a_minute(scene: Scene) -> None:
    late, early = scene.enqueue(1, priority=7)[0], scene.enqueue(1, priority=5)[0]
    scene.connection.execute(
        "update penstock.ready set ready_at = now() - interval '121 s' where range = %s", [late // 1024]
    )
    assert claimed(scene, 2) == sorted([late, early])
    assert [claimed(scene) for _ in range(2)] == [[], []]


def test_a_range_rescued_twice_gives_one_job_at_a_time(scene: Scene) -> None:
    ids = scene.enqueue(8)
    scene.connection.execute("update penstock.ready set rescues = 2")
    assert claimed(scene, 5, 100) == ids[:1]


def test_a_range_rescued_once_gives_what_starts_at_once(scene: Scene) -> None:
    ids = scene.enqueue(8)
    scene.connection.execute("update penstock.ready set rescues = 1")
    assert claimed(scene, 5, 100) == ids[:5]
