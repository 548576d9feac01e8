"""Causes over several shards: one cause wherever its dead letters lie, and wherever they are carried."""

from __future__ import annotations

import pytest
from tests.database.ledger import WRONG_CAUSES
from tests.shards.drained_world import World

from penstock.storage.upkeep import sweep


def die(world: World, *shards: int) -> list[int]:
    """Jobs of the plain queue that fail for the same reason, one on each of these shards."""
    ids = [world.plain(shard) for shard in shards]
    for id_, shard in zip(ids, shards, strict=True):
        world.fetch(shard, 'update penstock.job set args = \'{"n": 1, "how": "bad"}\' where id = %s returning 1', id_)
    world.work()
    return ids


def assert_counted(world: World) -> None:
    for wrong in world.databases.each(lambda connection: connection.execute(WRONG_CAUSES).fetchall()):
        assert wrong == []


def test_a_cause_is_told_retried_and_cleared_over_all_shards(world: World) -> None:
    ids = die(world, 1, 2, 2, 1, 2)
    (cause,) = world.app.causes("p")
    assert (cause.task, cause.shape, cause.dead) == ("run", "ValueError: bad", 5)
    assert cause.job_id in ids
    assert (sum(cause.last_hour), sum(cause.last_day)) == (5, 5)
    assert sorted(job.id for job in world.app.jobs(cause=cause.id)) == sorted(ids)
    (failed,) = world.app.failures("p").causes
    assert (failed.id, sum(failed.failed)) == (cause.id, 5)
    assert world.app.retry(cause=cause.id, preview=True) == 5
    assert world.app.purge("p", cause=cause.id) == 5
    assert world.app.causes() == []
    assert sum(world.app.failures("p").causes[0].failed) == 5, "they failed all the same"
    assert_counted(world)


@pytest.mark.parametrize("is_folded", [False, True])
def test_what_is_carried_from_a_drained_shard_is_counted_where_it_lies(world: World, is_folded: bool) -> None:
    ids = die(world, 1, 2, 2)
    if is_folded:
        world.databases.each(sweep.fold_causes)
    before = world.app.causes()
    world.drain(2)
    (cause,) = world.app.causes()
    assert (cause.id, cause.dead, cause.first_at, cause.last_at) == (
        before[0].id,
        3,
        before[0].first_at,
        before[0].last_at,
    )
    assert world.fetch(1, "select count(*) from penstock.dead") == [(3,)]
    said = world.fetch(1, "select failed from penstock.cause_period union all select failed from penstock.cause_tally")
    assert sum(failed for (failed,) in said) == 1, "the others failed elsewhere"
    assert_counted(world)
    assert sorted(job.id for job in world.app.jobs(cause=cause.id)) == sorted(ids)
    assert world.app.retry(cause=cause.id) == 3
    assert world.app.causes() == []
    assert_counted(world)


def test_a_deleted_queue_has_no_causes_any_more(world: World) -> None:
    die(world, 1, 2)
    world.app.delete_queue("p", force=True)
    assert world.app.causes() == []
    assert_counted(world)
