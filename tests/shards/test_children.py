"""Children learn how parents on other shards ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.database.ledger import check
from tests.fault.proxy import Proxy
from tests.shards.place import Place
from tests.system.facts import eventually

from penstock.client.producer import Producer
from penstock.errors import InvalidInput
from penstock.shards import upkeep_duties
from penstock.shards.databases import Databases
from penstock.shards.parents import ParentEnd, enter_parent_ends, forget_ends, tell_children
from penstock.shards.upkeep_duties import Duty
from penstock.storage.upkeep.prune import prune
from penstock.storage.upkeep.sweep import unblock_all
from penstock.storage.upkeep.tables_ahead import rotate_slice
from penstock.upkeep import SharedUpkeep

NO_DAYS = dict.fromkeys(("succeeded", "failed", "cancelled", "discarded", "expired"), 0.0)


def sweep(place: Place) -> None:
    SharedUpkeep(place.app.databases).sweep()


def test_a_child_runs_when_its_parents_on_any_shard_have_succeeded(place: Place) -> None:
    parents = [*place.enqueue(1), *place.enqueue(2)]
    children = [place.child(shard, parents) for shard in (1, 2)]
    sweep(place)
    assert [place.app.job(id_).state for id_ in children] == ["blocked", "blocked"]
    assert str(place.app.explain(children[1])).startswith(f"blocked by {parents[0]}")
    assert place.succeed(1) == parents[:1]
    sweep(place)
    assert [place.app.job(id_).state for id_ in children] == ["blocked", "blocked"]
    assert str(place.app.explain(children[0])) == f"blocked by {parents[1]}"
    assert place.succeed(2) == parents[1:]
    sweep(place)
    # The second shard's own parent has ended, too, and nobody has told the child of it yet.
    for shard in (1, 2):
        place.database(shard).run(unblock_all)
    assert [place.app.job(id_).state for id_ in children] == ["ready", "ready"]


def test_a_child_of_a_parent_that_failed_elsewhere_ends_or_runs_as_it_was_asked_to(place: Place) -> None:
    (parent,) = place.enqueue(1)
    ends, runs = place.child(2, [parent]), place.child(2, [parent], on_parent_failure="run")
    place.app.cancel(parent)
    sweep(place)
    assert [place.app.job(id_).state for id_ in (ends, runs)] == ["cancelled", "ready"]
    assert place.app.job(ends).error == f"parent {parent} did not succeed"


def test_a_line_of_children_from_shard_to_shard_is_followed_to_its_end(place: Place) -> None:
    (parent,) = place.enqueue(1)
    line = [parent]
    for shard in (2, 1, 2, 1):
        line.append(place.child(shard, line[-1:]))
    last = place.child(2, line[-1:], on_parent_failure="run")
    place.app.cancel(parent)
    sweep(place)
    assert [place.app.job(id_).state for id_ in (*line, last)] == ["cancelled"] * 5 + ["ready"]


def dead_line(place: Place) -> list[int]:
    """A dead letter on shard 1, a child on shard 2, a grandchild on shard 1 and another on shard 2."""
    (parent,) = place.enqueue(1)
    line = [parent]
    for shard in (2, 1, 2):
        line.append(place.child(shard, line[-1:]))
    assert place.fail(1) == [parent]
    sweep(place)
    assert states(place, line) == ["failed", "cancelled", "cancelled", "cancelled"]
    return line


def states(place: Place, ids: Sequence[int]) -> list[str]:
    for shard in (1, 2):
        with place.database(shard).connect() as connection:
            check(connection)
    return [str(place.app.job(id_).state) for id_ in ids]


def test_retrying_a_dead_letter_brings_back_its_children_on_other_shards_and_theirs(place: Place) -> None:
    line = dead_line(place)
    assert place.execute(2, "select has_succeeded, is_final from penstock.parent_end") == [(False, False)] * 2
    forget_ends(place.app.databases)
    assert str(place.app.explain(line[1])) == (
        f"cancelled for {line[0]}, a dead letter or cancelled for one on another shard: retry it and it waits again, "
        "purge it and it stays cancelled"
    )
    for _ in range(2):
        assert place.app.retry(line[0]) == "ready"
        sweep(place)
        assert states(place, line) == ["ready", "blocked", "blocked", "blocked"]
        assert place.execute(2, "select 1 from penstock.parent_end") == []
        assert place.fail(1) == line[:1]
        sweep(place)
        assert states(place, line) == ["failed", "cancelled", "cancelled", "cancelled"]
    place.app.retry(line[0])
    for shard, id_ in zip((1, 2, 1, 2), line, strict=True):
        sweep(place)
        assert place.succeed(shard) == [id_]
    assert states(place, line) == ["succeeded"] * 4


def test_purging_a_dead_letter_makes_its_children_on_other_shards_history(place: Place) -> None:
    line = dead_line(place)
    assert place.app.purge("q", state="failed") == 1
    let_history_go(place, 1)
    sweep(place)
    for shard in (1, 2):
        assert place.execute(shard, "select 1 from penstock.blocked") == []
    assert states(place, line[1:]) == ["cancelled"] * 3
    forget_ends(place.app.databases)
    assert place.execute(1, "select 1 from penstock.awaited") == []


def test_who_is_to_wait_does_so_for_a_dead_letter_of_another_shard(place: Place) -> None:
    (parent,) = place.enqueue(1)
    child = place.child(2, [parent], on_parent_failure="wait")
    place.fail(1)
    sweep(place)
    assert states(place, [child]) == ["blocked"]
    assert str(place.app.explain(child)) == (
        f"blocked by {parent}, a dead letter or cancelled for one on another shard: retry or purge it"
    )
    place.app.retry(parent)
    assert place.succeed(1) == [parent]
    sweep(place)
    assert states(place, [child]) == ["ready"]


def test_while_the_shard_of_a_dead_letter_is_away_its_children_stay_as_they_are(place: Place, second: Proxy) -> None:
    (parent,) = place.enqueue(2)
    child = place.child(1, [parent])
    assert place.fail(2) == [parent]
    sweep(place)
    assert states(place, [child]) == ["cancelled"]
    place.app.retry(parent)
    second.go_down()
    sweep(place)
    assert place.app.job(child).state == "cancelled"
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    sweep(place)
    assert states(place, [child]) == ["blocked"]


def test_what_was_heard_of_a_dead_letter_late_changes_nothing_that_is_final(place: Place) -> None:
    parent, other = place.enqueue(1, 2)
    child = place.child(2, [parent, other])
    with place.database(2).connect() as connection:
        for end in (ParentEnd(True, True), ParentEnd(False, False), None):
            enter_parent_ends(connection, {parent: end})
            assert states(place, [child]) == ["blocked"]
    assert place.execute(2, "select has_succeeded, is_final from penstock.parent_end") == [(True, True)]


def test_a_parent_that_is_gone_did_not_succeed(place: Place) -> None:
    (parent,) = place.enqueue(1)
    child = place.child(2, [parent])
    place.execute(1, "delete from penstock.ready; delete from penstock.job")
    sweep(place)
    assert place.app.job(child).state == "cancelled"


def test_what_was_heard_is_forgotten_when_nobody_waits_for_it(place: Place) -> None:
    parents = place.enqueue(1, 2)
    child = place.child(2, parents, on_parent_failure="run")
    place.app.cancel(parents[0])
    sweep(place)
    assert place.execute(2, "select job_id, has_succeeded from penstock.parent_end") == [(parents[0], False)]
    place.app.cancel(parents[1])
    sweep(place)
    assert place.app.job(child).state == "ready"
    assert place.execute(2, "select 1 from penstock.parent_end") == []


def test_a_dead_shard_keeps_no_others_children_waiting(place: Place, second: Proxy) -> None:
    (here,), (there,) = place.enqueue(1), place.enqueue(2)
    of_both, of_here = place.child(1, [here, there]), place.child(1, [here])
    assert place.succeed(1) == [here]
    second.go_down()
    sweep(place)
    place.database(1).run(unblock_all)
    assert [place.app.job(id_).state for id_ in (of_both, of_here)] == ["blocked", "ready"]
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    assert place.succeed(2) == [there]
    sweep(place)
    assert place.app.job(of_both).state == "ready"


def test_the_thread_tells_children_levels_catalogues_and_learns(place: Place) -> None:
    (parent,) = place.enqueue(1)
    child = place.child(2, [parent])
    learned: list[bool] = []
    upkeep = SharedUpkeep(place.app.databases, [lambda: learned.append(True)])
    upkeep.start()
    try:
        place.database(1).run(
            lambda c: c.execute(
                "update penstock.queue set rules = '{\"max_length\": 9}', version = penstock.next_version()"
            )
        )
        place.app.cancel(parent)
        eventually(lambda: place.app.job(child).state == "cancelled", "the child heard of its parent")
        eventually(
            lambda: place.execute(2, "select max_length from penstock.queue") == [(9,)], "the catalogue is level"
        )
        eventually(lambda: learned, "it looked for further shards")
    finally:
        upkeep.stop()


def test_how_a_parent_ended_is_kept_until_it_was_heard_on_the_other_shard(place: Place, second: Proxy) -> None:
    (parent,) = place.enqueue(1)
    child = place.child(2, [parent])
    sweep(place)
    second.go_down()
    assert place.succeed(1) == [parent]
    # As an archive does it: everything that ended leaves, but for what is waited for.
    place.execute(1, "select penstock.use_next_slice()")
    kept = "select count(*) from penstock.finished where range in (select parent_id / 1024 from penstock.waited_for)"
    assert place.execute(1, kept) == [(1,)]
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)
    sweep(place)
    assert place.app.job(child).state == "ready"
    assert place.execute(1, "select 1 from penstock.awaited") == []


def test_a_note_that_was_left_behind_is_forgotten_and_one_that_counts_is_kept(place: Place) -> None:
    heard, ended, runs = place.enqueue(1, 3)
    place.child(2, [ended, runs])
    for parent in (heard, ended, runs):
        place.execute(1, "insert into penstock.awaited values (%s, 2)", parent)
    place.app.cancel(heard)
    place.app.cancel(ended)
    forget_ends(place.app.databases)
    assert place.execute(1, "select parent_id from penstock.awaited order by 1") == [(ended,), (runs,)]


def test_work_until_idle_follows_children_over_all_shards(place: Place) -> None:
    (parent,) = place.enqueue(1)
    line = [parent]
    for shard in (2, 1, 2):
        line.append(place.child(shard, line[-1:]))
    assert place.app.work(until_idle=True).succeeded == 4
    assert [place.app.job(id_).state for id_ in line] == ["succeeded"] * 4
    (one, other) = (place.execute(shard, "select 1 from penstock.dependency") for shard in (1, 2))
    assert not [*one, *other]


def _child_of(place: Place, parent: int) -> int:
    """By a client: where fewest jobs wait, which is on shard 2."""

    @place.app.queue("q", partitions=2).task
    def u() -> None: ...

    return u.options(after=[parent]).enqueue()


def let_history_go(place: Place, shard: int) -> None:
    """All that has ended is pruned there, but for what is waited for."""
    database = place.database(shard)
    database.run(rotate_slice)
    while any(number == 1 for (number,) in place.execute(shard, "select number from penstock.slice")):
        prune(database, NO_DAYS)


@pytest.mark.parametrize("is_heard_before", [False, True])
def test_a_parent_that_goes_between_the_check_and_the_write_of_its_child_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_heard_before: bool
) -> None:
    """G2: asked for in a transaction of its own, it was pruned before its child was written, and read as failed."""
    (parent,) = place.enqueue(1)
    place.enqueue(1, 5)
    if is_heard_before:
        place.child(2, [parent])
    assert place.succeed(1) == [parent]
    commit = Producer._commit

    def after_pruning(*given: object) -> None:
        tell_children(place.app.databases)
        forget_ends(place.app.databases)
        place.execute(2, "delete from penstock.parent_end")
        let_history_go(place, 1)
        commit(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "_commit", after_pruning)
        child = _child_of(place, parent)
    assert place.execute(2, "select job_id from penstock.blocked where job_id = %s", child) == [(child,)]
    sweep(place)
    assert place.app.job(child).state == "ready"
    # The note goes when no call can have asked of late.
    place.execute(1, "update penstock.awaited set checked_at = now() - interval '2 hours'")
    forget_ends(place.app.databases)
    assert place.execute(1, "select 1 from penstock.awaited") == []


def test_a_parent_that_is_gone_is_refused(place: Place) -> None:
    (parent,) = place.enqueue(1)
    place.enqueue(1, 5)
    assert place.succeed(1) == [parent]
    let_history_go(place, 1)
    with pytest.raises(InvalidInput, match="pruned"):
        _child_of(place, parent)


def test_the_end_of_a_parent_is_read_while_its_slice_is_on_its_way_out(place: Place) -> None:
    (parent,) = place.enqueue(1)
    child = place.child(2, [parent])
    assert place.succeed(1) == [parent]
    place.database(1).run(rotate_slice)
    place.execute(1, "update penstock.slice set is_detached = true where number = 1")
    place.execute(1, "alter table penstock.finished detach partition penstock.finished_1")
    sweep(place)
    assert place.app.job(child).state == "ready"


def test_a_sweep_waits_for_what_upkeep_is_about_to_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    seen: list[bool] = []

    def act(_: Databases) -> int:
        if not has_begun.is_set():
            has_begun.set()
            may_end.wait()
            is_done.set()
        else:
            seen.append(is_done.is_set())
        return 0

    is_done = threading.Event()
    monkeypatch.setattr(upkeep_duties, "DUTIES", [Duty("slow", act)])
    upkeep = SharedUpkeep(place.app.databases)
    upkeep.start()
    has_begun.wait()
    sweeping = threading.Thread(target=upkeep.sweep)
    sweeping.start()
    # A sweep that did not wait would be over by then.
    sweeping.join(0.5)
    may_end.set()
    sweeping.join()
    upkeep.stop()
    assert seen[0]
