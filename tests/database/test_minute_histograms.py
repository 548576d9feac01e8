"""How long jobs waited and ran, minute by minute: what each process told, added up and kept for a day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.database.conftest import Scene

from penstock import App, Minute
from penstock.policy.histogram import Histogram
from penstock.storage.upkeep import sweep
from penstock.upkeep import Upkeep

ROWS = "select count(*), bool_and(is_folded) from penstock.minute_histogram"


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


def pass_minutes(scene: Scene, count: int) -> None:
    """Everything that was noted is so many minutes older."""
    past = f"- {count} * interval '1 minute'"
    scene.connection.execute(
        f"update penstock.minute set minute = minute {past}, noted_at = noted_at {past},"
        f" previous = previous {past}".encode()
    )
    scene.connection.execute(f"update penstock.minute_histogram set minute = minute {past}".encode())


def tell(scene: Scene, waits: list[int], runs: list[int], *, queue: int | None = None) -> None:
    """As a process does that counted these."""
    upkeep = Upkeep(scene.database, None)
    upkeep.times.add(scene.queue.id if queue is None else queue, waits, runs)
    upkeep.note_times()


def newest(app: App, queue: str = "q") -> Minute:
    return app.history(queue).minutes[-1]


def test_what_several_processes_told_is_of_one_minute_and_of_each_queue(scene: Scene, app: App) -> None:
    other = scene.declare("other")
    sweep.note_minute(scene.connection)
    tell(scene, [2_000_000] * 90, [1_000] * 90)
    tell(scene, [50_000_000] * 10, [1_000] * 10)
    tell(scene, [500_000], [40_000_000], queue=other.id)
    sweep.note_minute(scene.connection)
    told = newest(app)
    assert told.wait_seconds is not None
    assert told.run_seconds is not None
    assert (told.wait_seconds.count, told.run_seconds.count) == (100, 100)
    assert told.wait_seconds.p50 == pytest.approx(2, rel=0.26)
    assert [told.wait_seconds.p95, told.wait_seconds.p99] == pytest.approx([50, 50], rel=0.26)
    assert told.run_seconds.p99 == pytest.approx(0.001, rel=0.26)
    its = newest(app, "other").run_seconds
    assert its is not None
    assert its.count == 1
    assert its.p50 == pytest.approx(40, rel=0.26)


def test_a_minute_in_which_nothing_ran_has_no_percentiles(scene: Scene, app: App) -> None:
    sweep.note_minute(scene.connection)
    assert (newest(app).wait_seconds, newest(app).run_seconds) == (None, None)
    tell(scene, [], [7])
    assert newest(app).wait_seconds is None
    assert newest(app).run_seconds is not None


def test_they_are_added_up_when_their_minute_is_over_and_kept_for_a_day(scene: Scene, app: App) -> None:
    sweep.note_minute(scene.connection)
    tell(scene, [2_000_000] * 3, [100])
    tell(scene, [9_000_000], [100, 30_000])
    before = newest(app)
    pass_minutes(scene, 1)
    sweep.note_minute(scene.connection)
    assert scene.connection.execute(ROWS).fetchone() == (2, False)
    pass_minutes(scene, 1)
    sweep.note_minute(scene.connection)
    assert scene.connection.execute(ROWS).fetchone() == (1, True)
    after = app.history("q").minutes[0]
    assert (after.wait_seconds, after.run_seconds) == (before.wait_seconds, before.run_seconds)
    # A process that was late is added up by itself, and counts all the same.
    tell(scene, [2_000_000] * 4, [])
    pass_minutes(scene, 2)
    sweep.note_minute(scene.connection)
    assert scene.connection.execute(ROWS).fetchone() == (2, True)
    pass_minutes(scene, 24 * 60)
    sweep.note_minute(scene.connection)
    assert scene.connection.execute(ROWS).fetchone() == (0, None)


def test_what_could_not_be_written_is_told_a_minute_later_and_nothing_twice(scene: Scene, app: App) -> None:
    sweep.note_minute(scene.connection)
    upkeep = Upkeep(scene.database, None)
    upkeep.times.add(scene.queue.id, [100], [100])
    scene.connection.execute("alter table penstock.minute_histogram rename to away")
    with pytest.raises(Exception, match="minute_histogram"):
        upkeep.note_times()
    scene.connection.execute("alter table penstock.away rename to minute_histogram")
    upkeep.times.add(scene.queue.id, [100], [100])
    for _ in range(2):
        upkeep.note_times()
    told = newest(app).run_seconds
    assert told is not None
    assert told.count == 2
    assert scene.connection.execute(ROWS).fetchone() == (1, False)


def test_of_a_row_no_bucket_is_kept_behind_the_last_with_anything_in_it(scene: Scene) -> None:
    tell(scene, [100], [1_000_000])
    assert scene.connection.execute("select waits from penstock.minute_histogram").fetchone() == ([1],)
    assert scene.one("select cardinality(runs) from penstock.minute_histogram") == 41
    assert len(Histogram().counts) == 102
