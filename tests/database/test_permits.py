"""Permits: what a total_limit lets run in each partition, and the ledger that bounds it, whatever comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from tests.database.conftest import Scene
from tests.database.test_gate import jobs, use

from penstock import admin
from penstock.shards.permits import allot
from penstock.storage.catalogue.queues import find_queue, set_limits
from penstock.storage.inspect.stats import read_stats
from penstock.storage.work import permits as storage
from penstock.storage.work.permits import LedgerEntry, PermitReport


def share_out(scene: Scene) -> None:
    allot(scene.databases, scene.queue.id, scene.queue.rules.limit)


def permits(scene: Scene) -> list[int]:
    """Of each partition, partition 0 first."""
    rows = scene.connection.execute(
        "select permits from penstock.partition where queue_id = %s order by number", [scene.queue.id]
    )
    return [row[0] for row in rows]


def running(scene: Scene) -> list[int]:
    return [scene.one("select penstock.running_in(%s)::int", partition) for partition in scene.queue.partition_ids]


def ledger(scene: Scene) -> list[LedgerEntry]:
    return storage.read_ledger(scene.connection, scene.queue.id)


def assert_bounded(scene: Scene, total: int) -> None:
    entries = {each.partition_id: each for each in ledger(scene)}
    assert sum(max(each.held or 0, each.permits) for each in entries.values()) <= total
    for report in storage.report_permits(scene.connection, scene.queue.id):
        entry = entries[report.partition_id]
        assert entry.held is None or report.occupied <= max(entry.held, entry.permits)


def test_without_permits_nothing_starts_and_with_them_no_more_in_all_partitions_than_the_limit(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=3)
    for partition in range(3):
        scene.enqueue(9, partition=partition)
    assert scene.claim(100, 100) == []
    share_out(scene)
    assert sum(permits(scene)) == 4
    held = scene.claim(100, 100)
    assert (len(held), running(scene)) == (4, permits(scene))
    assert scene.one("select bool_or(is_ahead) from penstock.lease") is False
    assert scene.claim(100, 100) == []
    scene.succeed(held)
    assert len(scene.claim(100)) == 4
    scene.assert_conserved()


def test_permits_follow_the_work_to_another_partition(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    scene.enqueue(4, partition=0)
    share_out(scene)
    assert permits(scene) == [4, 0]
    held = scene.claim(100)
    scene.enqueue(8, partition=1)
    share_out(scene)
    # What runs keeps its permit until it has ended, and nothing follows it.
    assert (running(scene), permits(scene)) == ([4, 0], [2, 0])
    assert_bounded(scene, 4)
    scene.succeed(held[:3])
    share_out(scene)
    assert permits(scene) == [1, 3]
    assert len(scene.claim(100)) == 3
    scene.succeed(held[3:])
    share_out(scene)
    assert permits(scene) == [0, 4]
    assert_bounded(scene, 4)


def test_of_a_partition_s_limit_and_its_permits_the_lower_counts(scene: Scene) -> None:
    use(scene, total_limit=8, limit=3, partitions=2)
    for partition in range(2):
        scene.enqueue(9, partition=partition)
    share_out(scene)
    scene.claim(100)
    assert running(scene) == [3, 3]
    set_limits(scene.connection, "gated", {"limit": 1})
    assert scene.claim(100) == []


def test_a_raise_is_entered_before_it_is_told_and_a_late_word_changes_nothing(scene: Scene) -> None:
    use(scene, total_limit=2, partitions=2)
    first, second = scene.queue.partition_ids
    share_out(scene)
    assert permits(scene) == [1, 1]
    scene.enqueue(9, partition=0)
    scene.claim(1)
    entries = {each.partition_id: each for each in ledger(scene)}
    # Somebody lowers the second, and stops before the ledger hears that it has been: nobody gets its permit.
    storage.allot_permits(scene.connection, scene.queue.id, list(entries.values()), {second: 0})
    (lowered,) = [each for each in ledger(scene) if each.partition_id == second]
    storage.allot_permits(scene.connection, scene.queue.id, ledger(scene), {first: 2})
    assert [each.permits for each in ledger(scene)] == [1, 0]
    told = storage.tell_permits(scene.connection, lowered)
    assert told == PermitReport(second, lowered.number, 0, 0, as_of=told.as_of)
    # A word from before comes late.
    late = storage.tell_permits(scene.connection, entries[second])
    assert (late.permits, permits(scene)) == (0, [1, 0])
    storage.note_permits(scene.connection, scene.queue.id, [told])
    assert storage.allot_permits(scene.connection, scene.queue.id, ledger(scene), {first: 2}) == 1
    assert_bounded(scene, 2)


def test_what_was_decided_by_an_older_ledger_is_left_alone(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    share_out(scene)
    before = ledger(scene)
    scene.enqueue(9, partition=0)
    share_out(scene)
    assert storage.allot_permits(scene.connection, scene.queue.id, before, {before[1].partition_id: 4}) == 0
    assert_bounded(scene, 4)


def test_a_lower_limit_lets_what_runs_end_and_starts_nothing_until_then(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    for partition in range(2):
        scene.enqueue(9, partition=partition)
    share_out(scene)
    held = scene.claim(100)
    set_limits(scene.connection, "gated", {"total_limit": 1})
    share_out(scene)
    for each in held[:3]:
        scene.succeed([each])
        share_out(scene)
        assert scene.claim(100) == []
    scene.succeed(held[3:])
    share_out(scene)
    assert len(scene.claim(100)) == 1
    assert_bounded(scene, 1)


def test_a_limit_that_comes_later_counts_what_runs_already(scene: Scene) -> None:
    use(scene, partitions=2)
    scene.enqueue(9, partition=0)
    scene.enqueue(9, partition=1)
    held = scene.claim(5)
    set_limits(scene.connection, "gated", {"total_limit": 6})
    assert scene.claim(100) == []
    share_out(scene)
    assert len(scene.claim(100)) == 1
    scene.succeed(held)
    # Taken away and given again: it is asked anew what runs.
    set_limits(scene.connection, "gated", {"total_limit": None})
    assert len(scene.claim(7)) == 7
    set_limits(scene.connection, "gated", {"total_limit": 6})
    assert all(each.held is None for each in ledger(scene))
    share_out(scene)
    assert scene.claim(100) == []
    assert sum(each.held or 0 for each in ledger(scene)) == 8


def test_nobody_gets_more_while_a_partition_has_not_answered(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    scene.connection.execute(
        "update penstock.partition set shard = 2 where number = 1 and queue_id = %s", [scene.queue.id]
    )
    ids = scene.enqueue(9, partition=0)
    share_out(scene)
    assert permits(scene) == [0, 0]
    assert admin.explain(scene.databases, ids[0]).reason == (
        "total_limit 4: this partition may run none of them for now; no partition gets more before shard 2 has "
        "answered once since the limit came"
    )
    scene.connection.execute(
        "update penstock.partition set shard = 1 where number = 1 and queue_id = %s", [scene.queue.id]
    )
    # Just now: who has waited beside permits for a while is taken for one that cannot use them.
    scene.connection.execute("update penstock.ready set ready_at = clock_timestamp() + interval '1 minute'")
    share_out(scene)
    assert permits(scene) == [4, 0]


def test_a_silent_shard_keeps_what_it_has_until_it_is_drained(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    scene.enqueue(9, partition=1)
    share_out(scene)
    assert permits(scene) == [0, 4]
    scene.connection.execute(
        "update penstock.partition set shard = 2 where number = 1 and queue_id = %s", [scene.queue.id]
    )
    scene.enqueue(9, partition=0)
    share_out(scene)
    assert permits(scene)[0] == 0
    scene.connection.execute(
        "insert into penstock.shard (number, identity, address)"
        " values (1, gen_random_uuid(), 'a'), (2, gen_random_uuid(), 'b')"
    )
    for state in ("draining", "drained"):
        scene.connection.execute("update penstock.shard set state = %s where number = 2", [state])
    share_out(scene)
    assert permits(scene)[0] == 4


def test_a_ledger_that_was_lost_is_made_anew_from_what_partitions_say(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    scene.enqueue(9, partition=0)
    share_out(scene)
    scene.claim(3)
    scene.connection.execute("delete from penstock.permit_ledger")
    share_out(scene)
    assert_bounded(scene, 4)
    share_out(scene)
    assert (permits(scene), running(scene)) == ([4, 0], [3, 0])


def test_another_lead_s_numbers_are_higher_than_any_of_the_one_before(scene: Scene) -> None:
    before = scene.one("select penstock.next_permit_number(5)")
    scene.connection.execute("update penstock.catalogue set number = 2")
    assert scene.one("select penstock.next_permit_number(0)") > before + 10**9


def test_only_the_lead_keeps_the_ledger(scene: Scene) -> None:
    use(scene, total_limit=4)
    scene.connection.execute(
        "insert into penstock.shard (number, identity, address)"
        " values (1, gen_random_uuid(), 'a'), (2, gen_random_uuid(), 'b')"
    )
    scene.connection.execute("update penstock.catalogue set number = 2")
    with pytest.raises(psycopg.Error) as raised:
        storage.note_permits(scene.connection, scene.queue.id, [])
    assert raised.value.sqlstate == "PS004"


def test_one_at_a_time_has_the_duty_and_another_takes_over_when_it_has_run_out(scene: Scene) -> None:
    use(scene, total_limit=4)
    queue = scene.queue.id
    assert storage.take_duty(scene.connection, queue, 1, 60.0)
    assert storage.take_duty(scene.connection, queue, 1, 60.0)
    assert not storage.take_duty(scene.connection, queue, 2, 60.0)
    scene.connection.execute("update penstock.permit_duty set until = clock_timestamp()")
    assert storage.take_duty(scene.connection, queue, 2, 60.0)


def test_who_has_the_duty_writes_it_when_half_is_over_and_who_has_not_locks_nothing(scene: Scene) -> None:
    use(scene, total_limit=4)
    queue = scene.queue.id
    version = "select concat(xmin, ' ', xmax, ' ', ctid) from penstock.permit_duty"
    assert storage.take_duty(scene.connection, queue, 1, 60.0)
    before = scene.one(version)
    assert storage.take_duty(scene.connection, queue, 1, 60.0)
    assert not storage.take_duty(scene.connection, queue, 2, 60.0)
    assert scene.one(version) == before
    scene.connection.execute("update penstock.permit_duty set until = clock_timestamp() + interval '29 seconds'")
    assert storage.take_duty(scene.connection, queue, 1, 60.0)
    assert scene.one("select until > clock_timestamp() + interval '31 seconds' from penstock.permit_duty")
    assert not storage.take_duty(scene.connection, queue, 2, 60.0)


def test_places_that_nothing_is_written_to_get_no_permits_that_nobody_wants(scene: Scene) -> None:
    use(scene, total_limit=8, partitions=2)
    reports = storage.report_permits(scene.connection, scene.queue.id)
    assert [each.is_current for each in reports] == [True, True]
    scene.connection.execute(
        "update penstock.partition set state = 'left', left_at = 1 where number = 1 and queue_id = %s", [scene.queue.id]
    )
    assert [each.is_current for each in storage.report_permits(scene.connection, scene.queue.id)] == [True, False]
    share_out(scene)
    assert permits(scene) == [8, 0]


def test_of_a_queue_that_has_no_total_any_more_nothing_is_entered(scene: Scene) -> None:
    use(scene, total_limit=4, partitions=2)
    share_out(scene)
    reports = storage.report_permits(scene.connection, scene.queue.id)
    assert scene.one("select penstock.delete_queue(%s)", scene.queue.id)
    # A round that began before comes to its end.
    assert storage.note_permits(scene.connection, scene.queue.id, reports) == []
    assert scene.one("select count(*) from penstock.permit_ledger") == 0
    assert scene.one("select count(*) from penstock.permit_duty") == 0


def test_figures_tell_what_may_run_in_the_queue_and_in_each_partition(scene: Scene) -> None:
    use(scene, total_limit=4, limit=3, partitions=2)
    scene.enqueue(9, partition=0)
    share_out(scene)
    stats = read_stats(scene.connection, find_queue(scene.connection, "gated"))
    assert (stats.limit, [part.limit for part in stats.partitions]) == (4, [3, 1])


def test_who_waits_for_a_permit_is_told_how_many_there_are_and_who_has_them(scene: Scene) -> None:
    use(scene, total_limit=2, partitions=1)
    ids = scene.enqueue(5)
    share_out(scene)
    assert jobs(scene.claim(10)) == ids[:2]
    explanation = admin.explain(scene.databases, ids[3])
    assert explanation.reason == (
        f"total_limit 2: this partition may run 2 of them for now, and does: held by {ids[0]}, {ids[1]}"
    )
    facts: Mapping[str, Any] = explanation.detail
    assert (facts["total_limit"], facts["permits"], facts["running"], facts["held_by"]) == (2, 2, 2, ids[:2])


def test_who_waits_is_told_of_jobs_that_started_before_permits_went_elsewhere(scene: Scene) -> None:
    use(scene, total_limit=2, partitions=2)
    first = scene.enqueue(3, partition=0)
    share_out(scene)
    assert jobs(scene.claim(10)) == first[:2]
    scene.enqueue(3, partition=1)
    for permits, text in ((1, "1"), (0, "none")):
        scene.connection.execute("update penstock.partition set permits = %s where number = 0", [permits])
        explanation = admin.explain(scene.databases, first[2])
        assert explanation.reason == (
            f"total_limit 2: this partition may run {text} of them for now; what started before permits went elsewhere "
            f"still runs: {first[0]}, {first[1]}"
        )
        assert (explanation.detail["permits"], explanation.detail["running"]) == (permits, 2)


def test_a_queue_that_is_paused_wants_no_permits(scene: Scene) -> None:
    use(scene, total_limit=2, partitions=2)
    scene.enqueue(5, partition=0)
    scene.connection.execute("update penstock.queue set is_paused = true where id = %s", [scene.queue.id])
    assert [each.waiting for each in storage.report_permits(scene.connection, scene.queue.id)] == [0, 0]
