"""With very many partitions an act costs what there is to do: pages touched, and partitions looked at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest
from tests.database.conftest import TOKEN, Scene
from tests.database.owned import Owned
from tests.database.stepwise import lasting_scene
from tests.database.test_plans import assert_cheap

from penstock.clock import ManualClock
from penstock.engine import owner as owner_module
from penstock.engine import partition_watch
from penstock.engine.owned_partition import FEWEST_ROWS
from penstock.engine.owner import Owner
from penstock.routing.key_hash import partition_of
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.queries import query
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work import owner as storage
from penstock.storage.work.exchange import exchange
from penstock.storage.work.owner import News

PARTITIONS = 1_000
# Of the catalogue, of an empty table, and of an index.
VERY_FEW_PAGES = 60


@pytest.fixture(scope="module")
def many(server_url: str, template_database: str) -> Iterator[Scene]:
    """A queue of a thousand partitions between two others, and one with an owner that is as large."""
    with lasting_scene(server_url, template_database, "many") as scene:
        scene.declare("before")
        scene.queue = scene.declare("many", partitions=PARTITIONS)
        scene.declare("after")
        scene.declare("owned", partitions=PARTITIONS, order="key")
        scene.worker = scene.register()
        yield scene


@pytest.fixture(autouse=True)
def empty(many: Scene) -> None:
    many.connection.execute("truncate penstock.ready, penstock.lease")


def fill(scene: Scene, partitions: list[int], *, is_owned: bool = False, task: str = "t") -> None:
    """A row in each of these."""
    scene.connection.execute(
        "insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)"
        " select p, 5, p, p, 0, 1, case when %s then '' else %s end, case when %s then 1 end,"
        " case when %s then pg_current_xact_id() end from unnest(%s::int[]) as p",
        [is_owned, task, is_owned, is_owned, partitions],
    )


def wish(scene: Scene, **changes: Any) -> dict[str, Any]:
    ids = scene.queue.partition_ids
    return {
        "worker": scene.worker, "token": TOKEN, "firsts": array_text(ids[:1]), "lasts": array_text(ids[-1:]),
        "slots": 4, "ahead": 0, "has_suspect": False, "batch_sizes": None, "freed": "{}", "caps": None,
        "started": None, "starts": None,
    } | changes  # fmt: skip


def claimed(scene: Scene, **changes: Any) -> list[int]:
    """The partitions that a claim takes from; nothing is left of it."""
    with scene.connection.transaction(force_rollback=True):
        return [row[1] for row in scene.connection.execute(query("claim_unread"), wish(scene, **changes)).fetchall()]


def test_a_claim_over_a_thousand_empty_partitions_touches_very_few_pages(many: Scene) -> None:
    assert_cheap(many.connection, "claim", wish(many), VERY_FEW_PAGES)
    ids = many.queue.partition_ids
    assert_cheap(many.connection, "claim", wish(many, started=array_text(ids[5:6]), starts=array_text([0] * 10)), 200)


def test_a_claim_finds_the_only_partition_that_has_something(many: Scene) -> None:
    ids = many.queue.partition_ids
    fill(many, [ids[0] - 1, ids[700], ids[-1] + 1])
    assert claimed(many) == [ids[700]]
    assert_cheap(many.connection, "claim", wish(many), 200)


def test_partitions_are_tried_span_by_span(many: Scene) -> None:
    ids = many.queue.partition_ids
    fill(many, [ids[3], ids[500], ids[501], ids[999]])
    spans = {"firsts": array_text([ids[501], ids[0]]), "lasts": array_text([ids[999], ids[500]])}
    assert claimed(many, **spans) == [ids[501], ids[999], ids[3], ids[500]]
    assert claimed(many, **spans, slots=2) == [ids[501], ids[999]]


def test_a_partition_whose_start_is_told_is_looked_at_from_there_and_in_its_order(many: Scene) -> None:
    ids = many.queue.partition_ids
    fill(many, [ids[3], ids[500], ids[999]])
    assert claimed(many, started=array_text(ids[500:501]), starts=array_text([0] * 10)) == [ids[3], ids[500], ids[999]]
    late = array_text([ids[500] + 1] * 10)
    assert claimed(many, started=array_text(ids[500:501]), starts=late) == [ids[3], ids[999]]


def test_a_queue_that_gives_no_more_is_passed_over_whole(many: Scene) -> None:
    ids = many.queue.partition_ids
    fill(many, list(ids))
    assert claimed(many, caps=f'{{"{many.queue.id}": 2}}', slots=100) == [ids[0], ids[1]]
    # What of a thousand that could be taken is not looked at, one by one.
    assert_cheap(many.connection, "claim", wish(many, caps=f'{{"{many.queue.id}": 1}}', slots=100), 300)
    with many.connection.transaction(force_rollback=True):
        many.connection.execute("update penstock.queue set is_paused = true where id = %s", [many.queue.id])
        assert claimed(many) == []
        assert_cheap(many.connection, "claim", wish(many), VERY_FEW_PAGES)


def test_whether_there_is_work_and_what_upkeep_does_follow_what_is_ready(many: Scene) -> None:
    connection = many.connection
    assert_cheap(connection, "has_work", {"worker": many.worker}, VERY_FEW_PAGES)
    assert_cheap(connection, "park", {"after": 0}, VERY_FEW_PAGES)
    fill(many, [many.queue.partition_ids[600]])
    assert many.one(query("has_work") % {"worker": many.worker}) is True
    assert_cheap(connection, "has_work", {"worker": many.worker}, 100)
    assert_cheap(connection, "park", {"after": 0}, 200)


def test_parking_goes_on_behind_the_partitions_it_has_looked_at(many: Scene) -> None:
    ids = many.queue.partition_ids
    fill(many, list(ids), task="nobody's")
    assert sweep.park_some(many.connection, 0) == (500, ids[499])
    assert sweep.park_some(many.connection, ids[499]) == (500, ids[999])
    assert sweep.park_some(many.connection, ids[999]) == (0, None)
    fill(many, list(ids), task="nobody's")
    assert sweep.park(many.connection) == PARTITIONS


def test_an_owner_is_told_where_something_came_by_one_look(many: Scene) -> None:
    ids = find_queue(many.connection, "owned").partition_ids
    fill(many, list(ids), is_owned=True)
    before = storage.read_news(many.connection, None)
    assert sorted(before.partitions) == sorted(ids)
    fill(many, [ids[7]], is_owned=True)
    assert_cheap(many.connection, "read_news", {"before": before.as_of}, VERY_FEW_PAGES)
    news = storage.read_news(many.connection, before.as_of)
    assert news.partitions == [ids[7]]
    assert storage.read_news(many.connection, news.as_of).partitions == []


def test_news_are_told_of_a_transaction_that_commits_late(many: Scene) -> None:
    ids = find_queue(many.connection, "owned").partition_ids
    late = many.connect()
    with late.transaction():
        late.execute("select pg_current_xact_id()")
        # One that began later has ended: the first is among those in progress.
        many.connection.execute("select pg_current_xact_id()")
        news = storage.read_news(many.connection, None)
        late.execute(
            "insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)"
            " values (%s, 5, 1, 1, 0, 1, '', 1, pg_current_xact_id())",
            [ids[3]],
        )
        between = storage.read_news(many.connection, news.as_of)
        assert between.partitions == []
    assert storage.read_news(many.connection, between.as_of).partitions == [ids[3]]


class Watched:
    """An owner for which a few partitions are very many, and which of them it looks at."""

    def __init__(self, owned: Owned, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner_module, "MANY_PARTITIONS", 1)
        self.owned = owned
        self.connection = owned.connection
        self.owner = Owner({owned.entry.id: {"t"}})
        self.looked_at: list[int] = []
        self._now = 100.0
        look = storage.look

        def watch(connection: Any, wishes: Any) -> Any:
            self.looked_at += [owned.entry.partition_ids.index(each.ownership.partition_id) for each in wishes]
            return look(connection, wishes)

        monkeypatch.setattr(storage, "look", watch)

    def start(self, seconds: float = 0.02) -> list[int]:
        """What starts next."""
        self._now += seconds
        self.looked_at.clear()
        self.owner.share(self.connection, self.owned.worker, self._now)
        self.owner.look(self.connection, 10, self._now)
        choices = self.owner.choose(10, 0, 0, self._now)
        turn = exchange(self.connection, self.owned.worker, "w", [], [], None, choices)
        self.owner.note_leased(choices, turn, self._now)
        self.owned.scene.tokens |= {lease.id: lease.token for lease in turn.chosen}
        self.leases = {lease.range * 1024 + p: lease for lease in turn.chosen for p in lease.positions}
        return list(self.leases)

    def end(self, job: int, end: str) -> None:
        lease = self.leases[job]
        self.owner.note_end(lease.partition_id, job, end, self._now)
        self.owned.end([(lease.id, job)], end, due_in=60.0)

    def start_within(self, rounds: int) -> list[int]:
        """What starts next, of so many rounds a second apart."""
        return next((jobs for _ in range(rounds) if (jobs := self.start(1.1))), [])


@pytest.fixture
def watched(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(Owned(scene, partitions=4), monkeypatch)


def test_an_owner_of_many_looks_only_where_something_came(watched: Watched) -> None:
    owned = watched.owned
    assert watched.start() == []
    assert watched.looked_at == []
    (job,) = owned.enqueue([owned.key(2, 4)])
    assert watched.start() == [job]
    assert watched.looked_at == [2]
    watched.end(job, "discarded")
    watched.start()
    assert watched.start() == []
    assert watched.looked_at == []


def test_an_owner_of_many_starts_the_jobs_of_a_key_one_after_the_other(watched: Watched) -> None:
    owned = watched.owned
    key, other = owned.key(1, 4), owned.key(3, 4)
    jobs = owned.enqueue([key] * 3)
    (beside,) = owned.enqueue([other])
    assert sorted(watched.start()) == sorted([jobs[0], beside])
    held = dict(watched.leases)
    assert watched.start() == []
    for following in jobs[1:]:
        watched.leases = held
        watched.end(min(job for job in held if job != beside), "discarded")
        assert watched.start() == [following]
        held = dict(watched.leases)


def test_what_came_to_a_paused_queue_of_many_starts_when_it_goes_on(watched: Watched) -> None:
    owned = watched.owned
    watched.start()
    owned.connection.execute("update penstock.queue set is_paused = true where name = 'o'")
    watched.start(1.0)
    (job,) = owned.enqueue([owned.key(0, 4)])
    assert watched.start() == []
    assert watched.owner.patience(0.0) > 0
    owned.connection.execute("update penstock.queue set is_paused = false where name = 'o'")
    assert watched.start(1.0) == [job]


def test_a_retry_of_many_holds_its_key_until_it_is_back(watched: Watched) -> None:
    owned = watched.owned
    first, second = owned.enqueue([owned.key(0, 4)] * 2)
    assert watched.start() == [first]
    watched.end(first, "retry")
    assert watched.start(0.2) == []
    owned.connection.execute("update penstock.scheduled set due_at = now() - interval '1 s'")
    assert sweep.promote(owned.connection) == 1
    assert (watched.start(0.2) or watched.start(0.2)) == [first]
    watched.end(first, "discarded")
    assert watched.start(0.2) == [second]


def test_an_owner_of_many_notes_all_that_is_idle_at_once(watched: Watched) -> None:
    owned = watched.owned
    watched.start()
    assert watched.owner.is_idle(0.0)
    watched.owner.note_idle(owned.connection, owned.worker, 0.0)
    assert owned.scene.one("select count(*) from penstock.idle_partition") == 4
    (job,) = owned.enqueue([owned.key(0, 4)])
    other = owned.scene.register(("t", "u"), owned.entry)
    assert storage.has_work_of_others(owned.connection, other)
    assert watched.start() == [job]


def test_g2_what_came_to_one_of_many_is_looked_at_again_where_a_look_was_cut(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = watched.owned
    watched.start()
    (job,) = owned.enqueue([owned.key(2, 4)])

    def lose(*_: object, **__: object) -> Any:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as cut:
        cut.setattr(storage, "look", lose)
        with pytest.raises(psycopg.OperationalError):
            watched.start()
    assert not watched.owner.is_idle(0.0)
    assert watched.start() == [job]
    # The same where it was cut between the rows and their jobs.
    (job,) = owned.enqueue([owned.key(3, 4)])
    with monkeypatch.context() as cut:
        cut.setattr(storage, "read_waiting", lose)
        with pytest.raises(psycopg.OperationalError):
            watched.start()
    assert watched.start() == [job]


def test_g14_what_another_server_has_not_told_is_listed_anew(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that said where something came is gone before any partition is looked at."""
    owned = watched.owned
    ids = owned.entry.partition_ids
    with monkeypatch.context() as before:
        before.setattr(storage, "read_news", lambda *_: News("999999999:999999999:", "gone", [ids[0]]))
        watched.start()
    (job,) = owned.enqueue([owned.key(2, 4)])
    assert watched.start_within(2) == [job]


def test_g14_an_owner_of_many_is_not_idle_before_it_has_read_another_server(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = watched.owned
    watched.start()
    (job,) = owned.enqueue([owned.key(2, 4)])
    with monkeypatch.context() as promoted:
        promoted.setattr(storage, "read_news", lambda *_: News("3:3:", "another", []))
        watched.owner.look_again()
        watched.owner.look(owned.connection, 1, 1000.0)
    assert not watched.owner.is_idle(1000.0)
    assert watched.start_within(2) == [job]


@pytest.mark.parametrize("lets_go", ["release_key", "retry_dead"])
def test_a_halted_key_of_many_goes_on_when_a_person_lets_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, lets_go: str
) -> None:
    watched = Watched(Owned(scene, partitions=4, on_dead="halt"), monkeypatch)
    owned, key = watched.owned, watched.owned.key(3, 4)
    first, second = owned.enqueue([key] * 2)
    assert watched.start() == [first]
    watched.end(first, "failed")
    assert watched.start_within(5) == []
    if lets_go == "release_key":
        assert control.release_key(owned.connection, owned.entry.id, key)
        assert watched.start_within(3) == [second]
    else:
        assert control.retry_dead(owned.connection, [first]) == [first]
        assert watched.start_within(3) == [first]


def test_a_job_that_was_cancelled_on_its_way_back_does_not_hold_its_key_among_many(watched: Watched) -> None:
    owned = watched.owned
    first, second = owned.enqueue([owned.key(3, 4)] * 2)
    assert watched.start() == [first]
    control.cancel_job(owned.connection, first)
    watched.end(first, "release")
    assert watched.start_within(4) == [second]


def test_each_of_many_is_swept_in_turn_however_often_they_are_shared_out(watched: Watched) -> None:
    owned = watched.owned
    jobs = [job for number in range(4) for job in owned.enqueue([owned.key(number, 4)])]
    assert sorted(watched.start()) == sorted(jobs)
    for job in jobs:
        watched.end(job, "discarded")
    swept: set[int] = set()
    for _ in range(12):
        watched.start(1.1)
        swept |= set(watched.looked_at)
    assert swept == {0, 1, 2, 3}


def test_what_waits_for_the_event_loop_is_work_though_none_of_many_was_looked_at(watched: Watched) -> None:
    owned = watched.owned
    watched.start()
    watched.owner.withheld = {owned.entry.id}
    (job,) = owned.enqueue([owned.key(2, 4)])
    assert watched.start() == []
    assert not watched.owner.is_idle(0.0)
    watched.owner.note_idle(owned.connection, owned.worker, 0.0)
    assert owned.scene.one("select count(*) from penstock.idle_partition") == 3
    watched.owner.withheld = frozenset()
    assert watched.start(1.1) == [job]


@pytest.mark.parametrize(("few", "seconds"), [(1, 10.5), (100, 0.6)])
def test_g9_a_share_that_took_long_for_once_is_asked_for_again_soon(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, few: int, seconds: float
) -> None:
    """What a worker owned that died meanwhile waits for it."""
    owned = Owned(scene, partitions=4)
    owner = Owner({owned.entry.id: {"t"}})
    monkeypatch.setattr(owner_module, "MANY_PARTITIONS", few)
    clock, share = ManualClock(), storage.share

    def stall(*given: Any) -> Any:
        clock.advance(30.0)
        return share(*given)

    with monkeypatch.context() as stalled:
        stalled.setattr(owner_module, "system", clock)
        stalled.setattr(storage, "share", stall)
        assert owner.share(owned.connection, owned.worker, 100.0)
    assert owner.share(owned.connection, owned.worker, 100.0 + seconds)


def test_what_stands_behind_a_deep_key_of_many_is_read_while_slots_are_free(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is ready in many partitions, and can start in none of them: each is at its limit."""
    monkeypatch.setattr(partition_watch, "MOST_LOOKS", 3)
    monkeypatch.setattr(owner_module, "READ_OF_MANY", 2)
    watched = Watched(Owned(scene, partitions=4, limit=2), monkeypatch)
    owned = watched.owned
    for number in range(3):
        keys = (b"k%d" % n for n in range(1000))
        owned.enqueue(list(islice((each for each in keys if partition_of(each, 4) == number), 3)))
    deep = owned.key(3, 4)
    (first, *_) = [job for _ in range(FEWEST_ROWS) for job in owned.enqueue([deep])]
    other = next(each for each in (b"o%d" % n for n in range(1000)) if partition_of(each, 4) == 3)
    (behind,) = owned.enqueue([other])
    started = [job for _ in range(5) for job in watched.start(1.1)]
    assert len(started) == 8
    assert {first, behind} <= set(started)


def test_a_job_of_many_that_lacked_a_permit_starts_when_one_comes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(Owned(scene, partitions=8, total_limit=8), monkeypatch)
    owned = watched.owned

    def permit(count: int) -> None:
        owned.connection.execute("update penstock.partition set permits = %s", [count])

    permit(1)
    watched.start()
    (job,) = owned.enqueue([owned.key(7, 8)])
    watched.owner.look(owned.connection, 10, 100.03)
    permit(0)
    choices = watched.owner.choose(1, 0, 0, 100.03)
    watched.owner.note_leased(choices, exchange(owned.connection, owned.worker, "w", [], [], None, choices), 100.03)
    assert watched.start(0.1) == []
    permit(1)
    # The partitions are not shared out again so soon.
    assert (watched.start(0.1) or watched.start(0.1)) == [job]
