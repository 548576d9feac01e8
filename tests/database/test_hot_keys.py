"""Which keys most of a queue's jobs are of: counted where they are few, and of very many estimated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.database.conftest import Scene
from tests.database.owned import Owned

from penstock import App, InvalidInput, NotFound
from penstock.storage.inspect import hot_keys

RANGES, IN_RANGE, SINGLES = 100, 500, 40_000
TOTAL = RANGES * IN_RANGE + SINGLES

# Half of the jobs came many in a call, the others alone: of these half again in one burst, all of one key, and the rest
# among many calls for other queues. Of the ranges every fifth job is of one key.
_FILL = """
insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args)
select (1 + n * 1024::bigint) * 1024 + p, now(), %(partition)s, 5, 't',
       case when p % 5 = 0 then 'often' else 'k' || n * 500::bigint + p end::bytea, '{}'::json
  from generate_series(1, %(ranges)s) as n, generate_series(0, %(in_range)s - 1) as p
union all
select (1 + (%(ranges)s + n::bigint) * 1024::bigint) * 1024, now(), %(partition)s, 5, 't',
       case when n <= %(singles)s / 2 then 'burst' else 'o' || n end::bytea, '{}'::json
  from generate_series(1, %(singles)s::int) as n;
insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)
select %(partition)s, 5, number, number, 0, case when n <= %(ranges)s then %(in_range)s else 1 end, '', 1,
       pg_current_xact_id()
  from (select n, 1 + n * 1024::bigint as number from generate_series(1, %(ranges)s + %(singles)s::int) as n) as g;
insert into penstock.tally (partition_id, opened, enqueued)
values (%(partition)s, %(total)s, %(total)s)
"""


@pytest.fixture
def owned(scene: Scene) -> Owned:
    return Owned(scene, on_dead="halt")


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        yield app


def test_a_queue_without_jobs_has_none_and_one_that_is_not_there_is_refused(owned: Owned, app: App) -> None:
    found = app.hot_keys("o")
    assert (found.queue, found.waiting, found.keys, found.is_estimate) == ("o", 0, [], False)
    with pytest.raises(NotFound):
        app.hot_keys("nothing")
    for limit in (0, 101, True):
        with pytest.raises(InvalidInput, match="limit"):
            app.hot_keys("o", limit)


def test_few_jobs_are_counted_and_the_key_with_the_most_comes_first(owned: Owned, app: App) -> None:
    began_at = datetime.now(UTC)
    a, c = (owned.key(0, 2, moves_to=(number, 3)) for number in (0, 1))
    b = owned.key(1, 2)
    owned.enqueue([a] * 3 + [c])
    owned.enqueue([b] * 5 + [None], number=1)
    owned.enqueue([a] * 3)
    found = app.hot_keys("o")
    assert (found.waiting, found.looked_at, found.is_estimate, found.unavailable) == (13, 13, False, [])
    assert [(each.key, each.waiting) for each in found.keys] == [(a.decode(), 6), (b.decode(), 5), (c.decode(), 1)]
    assert [each.share for each in found.keys] == pytest.approx([6 / 13, 5 / 13, 1 / 13], abs=0.001)
    assert all(each.oldest_ready_at >= began_at for each in found.keys)
    assert [each.key for each in app.hot_keys("o", 1).keys] == [a.decode()]


@pytest.fixture(params=[hot_keys.MOST_COUNTED, 0], ids=["counted", "from all pages"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few jobs are counted; or treated as many are, and as there are few pages, each of them is met."""
    monkeypatch.setattr(hot_keys, "MOST_COUNTED", request.param)


@pytest.mark.usefixtures("either_way")
def test_what_is_given_out_is_not_waiting_and_a_key_that_waits_says_for_what(owned: Owned, app: App) -> None:
    keys = [owned.key(0, 2, moves_to=(number, 3)) for number in range(3)]
    jobs = owned.enqueue([key for key in keys for _ in range(3)])
    owned.lease(jobs[:1])
    owned.end(owned.lease(jobs[3:4]), "retry", due_in=600)
    owned.end(owned.lease(jobs[6:7]), "failed")
    found = app.hot_keys("o")
    assert found.waiting == found.looked_at == 6
    assert {each.key: (each.waiting, each.running, each.is_held, each.is_halted) for each in found.keys} == {
        keys[0].decode(): (2, 1, False, False),
        keys[1].decode(): (2, 0, True, False),
        keys[2].decode(): (2, 0, False, True),
    }


@pytest.mark.usefixtures("either_way")
def test_parts_of_a_range_that_were_put_back_are_counted_once(owned: Owned, app: App) -> None:
    key = owned.key(0, 2)
    jobs = owned.enqueue([key] * 6)
    owned.end(owned.lease(jobs[1:3]), "release")
    found = app.hot_keys("o")
    assert (found.waiting, [each.waiting for each in found.keys]) == (6, [6])


def test_of_very_many_jobs_each_is_as_likely_to_be_met(owned: Owned, app: App) -> None:
    partition = owned.entry.partition_ids[0]
    given = {"partition": partition, "ranges": RANGES, "in_range": IN_RANGE, "singles": SINGLES, "total": TOTAL}
    for statement in _FILL.split(";\n"):
        owned.connection.execute(statement.replace("% 5", "%% 5").encode(), given)
    found = app.hot_keys("o", 5)
    assert (found.waiting, found.is_estimate) == (TOTAL, True)
    assert hot_keys.ENOUGH_JOBS <= found.looked_at < TOTAL
    first, second = found.keys[:2]
    assert (first.key, second.key) == ("burst", "often")
    # More than five standard deviations, if each page is of one kind of jobs.
    assert first.waiting == pytest.approx(SINGLES / 2, rel=0.7)
    assert second.waiting == pytest.approx(RANGES * IN_RANGE / 5, rel=0.7)
    assert all(each.waiting < 1_000 for each in found.keys[2:])


def test_where_most_jobs_have_ended_more_pages_are_read(
    owned: Owned, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_keys, "MOST_COUNTED", 100)
    monkeypatch.setattr(hot_keys, "FEW_PAGES", 2)
    partition = owned.entry.partition_ids[0]
    given = {"partition": partition, "ranges": RANGES, "in_range": IN_RANGE, "singles": SINGLES, "total": TOTAL}
    for statement in _FILL.split(";\n"):
        owned.connection.execute(statement.replace("% 5", "%% 5").encode(), given)
    # Of the ranges one is left, and the last.
    owned.connection.execute("delete from penstock.ready where range > 1025 and range < 1 + 40000 * 1024")
    found = app.hot_keys("o", 5)
    assert found.looked_at > 100
    assert [each.key for each in found.keys if each.key == "often"]
