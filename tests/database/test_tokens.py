"""Tokens: what a total_rate lets start in each partition, and the one bucket they come from, whatever comes first."""

from __future__ import annotations

from typing import Any

from tests.database.conftest import Scene
from tests.database.test_gate import use

from penstock import admin
from penstock.shards.permits import allot
from penstock.storage.catalogue.queues import set_limits
from penstock.storage.work import permits as storage
from penstock.storage.work.permits import LedgerEntry


def share_out(scene: Scene) -> None:
    allot(scene.databases, scene.queue.id, scene.queue.rules.limit)


def tokens(scene: Scene) -> list[int]:
    """Of each partition, partition 0 first."""
    return [scene.one("select penstock.total_tokens(%s)", partition) for partition in scene.queue.partition_ids]


def ledger(scene: Scene) -> list[LedgerEntry]:
    return storage.read_ledger(scene.connection, scene.queue.id)


def bucket(scene: Scene) -> int:
    """What the queue's bucket has."""
    return int(
        scene.one(
            "select floor(penstock.tokens(q.total_rate, d.full_at, clock_timestamp()) + 1e-3) from penstock.queue as q"
            " join penstock.permit_duty as d on d.queue_id = q.id where q.id = %s",
            scene.queue.id,
        )
    )


def pass_time(scene: Scene, seconds: float) -> None:
    """Let so much time have passed for all that is known of tokens."""
    for statement in (
        "update penstock.permit_duty set full_at = full_at - %s * interval '1 second'",
        "update penstock.permit_ledger set granted_at = granted_at - %s * interval '1 second'",
        "update penstock.permit_ledger set tokens_until = tokens_until - %s * interval '1 second'",
        "update penstock.partition set tokens_until = tokens_until - %s * interval '1 second'",
    ):
        scene.connection.execute(statement.encode(), [seconds])


def silence(scene: Scene, number: int, shard: int = 2) -> None:
    """Let a partition be on a shard that does not answer; 1: it is here again."""
    scene.connection.execute(
        "update penstock.partition set shard = %s where number = %s and queue_id = %s", [shard, number, scene.queue.id]
    )


def test_without_tokens_nothing_starts_and_with_them_no_more_in_all_partitions_than_the_bucket_holds(
    scene: Scene,
) -> None:
    use(scene, total_rate="6/h", partitions=3)
    for partition in range(3):
        scene.enqueue(9, partition=partition)
    assert scene.claim(100, 100) == []
    share_out(scene)
    assert sum(tokens(scene)) == 1
    assert len(scene.claim(100, 100)) == 1
    share_out(scene)
    assert (tokens(scene), scene.claim(100, 100)) == ([0, 0, 0], [])
    pass_time(scene, 600)
    share_out(scene)
    assert len(scene.claim(100, 100)) == 1
    scene.assert_conserved()


def test_partitions_get_equally_many_and_nothing_is_claimed_ahead(scene: Scene) -> None:
    use(scene, total_rate="400/m", partitions=2)
    for partition in range(2):
        scene.enqueue(9, partition=partition)
    share_out(scene)
    assert (tokens(scene), bucket(scene)) == ([3, 3], 0)
    assert len(scene.claim(4, 100)) == 4
    assert sum(tokens(scene)) == 2
    assert scene.one("select bool_or(is_ahead) from penstock.lease") is False


def test_of_a_rate_a_limit_and_a_total_rate_the_lowest_counts(scene: Scene) -> None:
    use(scene, total_rate="600/m", rate="4/s", limit=3, partitions=1)
    scene.enqueue(30)
    share_out(scene)
    held = scene.claim(100)
    assert len(held) == 3
    scene.succeed(held)
    assert len(scene.claim(100)) <= 3
    set_limits(scene.connection, "gated", {"rate": None, "limit": None})
    left = tokens(scene)[0]
    assert len(scene.claim(100)) == left < 10


def test_what_was_granted_runs_out_after_a_second_and_comes_back_into_the_bucket(scene: Scene) -> None:
    use(scene, total_rate="60/h", partitions=2)
    scene.enqueue(9, partition=0)
    share_out(scene)
    assert (tokens(scene), bucket(scene)) == ([1, 0], 0)
    scene.enqueue(9, partition=1)
    pass_time(scene, 1.1)
    assert (tokens(scene), scene.claim(100)) == ([0, 0], [])
    share_out(scene)
    # It was taken back, and is the turn of who has been without for longer.
    assert tokens(scene) == [0, 1]
    assert len(scene.claim(100)) == 1


def test_a_token_that_was_spent_does_not_come_back(scene: Scene) -> None:
    use(scene, total_rate="120/m", partitions=1)
    scene.enqueue(9)
    share_out(scene)
    assert len(scene.claim(1)) == 1
    set_limits(scene.connection, "gated", {"total_rate": "2/d"})
    pass_time(scene, 1.1)
    share_out(scene)
    assert (sum(each.tokens for each in ledger(scene)), bucket(scene)) == (1, 0)
    assert len(scene.claim(9)) == 1
    share_out(scene)
    assert scene.claim(9) == []


def test_a_word_that_comes_twice_or_late_gives_nothing_more(scene: Scene) -> None:
    use(scene, total_rate="300/m", partitions=1)
    scene.enqueue(9)
    share_out(scene)
    (entry,) = ledger(scene)
    assert tokens(scene) == [5]
    assert len(scene.claim(5)) == 5
    storage.tell_permits(scene.connection, entry)
    assert tokens(scene) == [0]
    later = entry._replace(number=entry.number + 1)
    storage.tell_permits(scene.connection, later)
    assert tokens(scene) == [0]
    # What was told to nobody for a second is worth nothing.
    late = entry._replace(number=entry.number + 2, token_total=entry.token_total + 9)
    pass_time(scene, 0)
    storage.tell_permits(scene.connection, late._replace(tokens_until=scene.one("select now() - interval '1 ms'")))
    assert tokens(scene) == [0]


def test_who_reads_the_ledger_forfeits_nothing_of_those_that_have_reported(scene: Scene) -> None:
    use(scene, total_rate="10/s", partitions=2)
    for partition in range(2):
        scene.enqueue(9, partition=partition)
    share_out(scene)
    pass_time(scene, 3.0)
    reports = storage.report_permits(scene.connection, scene.queue.id)
    noted = storage.note_permits(scene.connection, scene.queue.id, reports)
    assert [each.tokens for each in noted] == [each.tokens for each in ledger(scene)] == [5, 5]


def test_what_a_silent_shard_has_is_forfeited_and_counts_until_then(scene: Scene) -> None:
    use(scene, total_rate="600/m", partitions=2)
    scene.enqueue(9, partition=1)
    share_out(scene)
    assert tokens(scene) == [0, 9]
    silence(scene, 1)
    scene.enqueue(50, partition=0)
    pass_time(scene, 0.2)
    share_out(scene)
    # Three have come into the bucket, or more by now, but all together have no more than the ten it holds.
    assert tokens(scene) == [1, 9]
    assert bucket(scene) >= 2
    pass_time(scene, 1.9)
    share_out(scene)
    assert sum(each.tokens for each in ledger(scene)) <= 10
    assert tokens(scene)[0] > 1
    before = bucket(scene)
    silence(scene, 1, shard=1)
    set_limits(scene.connection, "gated", {"total_rate": "2/d"})
    share_out(scene)
    # It answers again: nothing comes back that others may have got meanwhile.
    assert tokens(scene)[1] == 0
    assert bucket(scene) <= max(before, 1)


def test_while_a_claim_is_under_way_its_tokens_do_not_come_back(scene: Scene) -> None:
    use(scene, total_rate="60/h", partitions=1)
    scene.enqueue(9)
    share_out(scene)
    other = scene.connect()
    with other.transaction():
        assert len(scene.claim(1, connection=other)) == 1
        pass_time_at_the_lead(scene)
        share_out(scene)
        assert bucket(scene) == 0
    share_out(scene)
    share_out(scene)
    assert (bucket(scene), tokens(scene)) == (0, [0])


def pass_time_at_the_lead(scene: Scene) -> None:
    scene.connection.execute("update penstock.permit_ledger set tokens_until = tokens_until - interval '2 seconds'")


def test_where_a_ledger_was_lost_the_bucket_begins_empty(scene: Scene) -> None:
    use(scene, total_rate="600/m", partitions=1)
    scene.enqueue(99)
    share_out(scene)
    assert len(scene.claim(5)) == 5
    for table in ("permit_ledger", "permit_duty"):
        scene.connection.execute(f"delete from penstock.{table}".encode())
    share_out(scene)
    share_out(scene)
    assert sum(tokens(scene)) <= 1
    pass_time(scene, 0.5)
    share_out(scene)
    assert 1 <= sum(tokens(scene)) < 10


def test_a_shard_that_was_restored_gets_nothing_for_the_starts_it_forgot(scene: Scene) -> None:
    use(scene, total_rate="600/m", partitions=1)
    scene.enqueue(99)
    share_out(scene)
    assert len(scene.claim(10)) == 10
    share_out(scene)
    scene.connection.execute("delete from penstock.spent")
    share_out(scene)
    assert sum(tokens(scene)) <= 1


def test_a_bucket_keeps_what_fits_when_its_rate_changes(scene: Scene) -> None:
    use(scene, total_rate="1/d", partitions=1)
    scene.enqueue(99)
    share_out(scene)
    assert len(scene.claim(9)) == 1
    set_limits(scene.connection, "gated", {"total_rate": "600/m"})
    storage.note_permits(scene.connection, scene.queue.id, [])
    assert scene.one("select full_at < clock_timestamp() + interval '1.1 seconds' from penstock.permit_duty")
    set_limits(scene.connection, "gated", {"total_rate": None})
    assert len(scene.claim(7)) == 7


def test_who_waits_for_a_token_is_told_when_the_queue_has_one(scene: Scene) -> None:
    use(scene, total_rate="60/h", partitions=1)
    ids = scene.enqueue(5)
    share_out(scene)
    assert len(scene.claim(10)) == 1
    explanation = admin.explain(scene.databases, ids[3])
    words, _, seconds = explanation.reason.partition("; the next of the queue may start in ")
    assert words == "total_rate 1/m: this partition may start none for now"
    assert 0 < float(seconds.removesuffix(" s")) <= 60
    facts: dict[str, Any] = dict(explanation.detail)
    assert facts["total_rate"] == "1/m"
    assert "short_of_tokens" not in facts


def test_a_queue_that_is_paused_gets_no_tokens(scene: Scene) -> None:
    use(scene, total_rate="2/s", partitions=1)
    scene.enqueue(5)
    scene.connection.execute("update penstock.queue set is_paused = true where id = %s", [scene.queue.id])
    share_out(scene)
    assert tokens(scene) == [0]


def test_a_total_limit_and_a_total_rate_hold_together(scene: Scene) -> None:
    use(scene, total_rate="5/s", total_limit=2, partitions=2)
    for partition in range(2):
        scene.enqueue(9, partition=partition)
    started = 0
    for _ in range(4):
        share_out(scene)
        held = scene.claim(100)
        assert len(held) <= 2
        started += len(held)
        scene.succeed(held)
    assert started > 2
