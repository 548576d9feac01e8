"""Batches that an owner has chosen, and fewer permits than it had seen."""

from __future__ import annotations

from penstock.engine.owned_partition import OwnedPartition
from penstock.engine.owner import Owner
from penstock.model.rules import QueueRules
from penstock.policy.batch_size import BatchSize
from penstock.policy.job_sequence import BATCH_SHIFT, HAS_HANDLER
from penstock.policy.roster import Roster
from penstock.storage.work.exchange import Turn
from penstock.storage.work.owner import Ownership

BATCHED = HAS_HANDLER | 1 << BATCH_SHIFT
SIZE = BatchSize(3)


def owner_of(jobs: int, permits: int) -> tuple[Owner, Roster]:
    """An owner of one partition, in which so many jobs of one key wait."""
    owner = Owner({1: {"t"}}, {1: {"t": SIZE}})
    roster = Roster(QueueRules.declared("q", order="key", total_limit=10), 1, 0.0, [SIZE])
    roster.permits = permits
    roster.add([(job, b"k", 5, 1, 0.0, "", 1, BATCHED) for job in range(jobs)])
    owner._partitions[7] = OwnedPartition(Ownership(7, 1, 1, is_surplus=False), roster, is_fair=False, most_in_slot=3)
    return owner, roster


def test_a_batch_has_no_more_jobs_than_there_are_permits_which_are_counted_in_jobs() -> None:
    owner, roster = owner_of(9, permits=2)
    (choice,) = owner.choose(4, 0, 0, 0.0)
    assert choice.jobs == [0, 1]
    assert choice.has_batches
    assert roster.running == 2


def test_a_batch_for_which_there_are_no_permits_any_more_is_made_anew_and_not_started_job_by_job() -> None:
    owner, _ = owner_of(9, permits=3)
    choices = owner.choose(4, 0, 0, 0.0)
    owner.note_leased(choices, Turn(short_of_permits={7}), 0.0)
    # It is read anew before anything of it is chosen: as single jobs of one key they would run at once.
    assert owner.ownerships == []
    assert owner.choose(4, 0, 0, 0.0) == []


def test_a_batch_that_was_put_off_is_made_anew_where_permits_were_taken_away() -> None:
    owner, roster = owner_of(9, permits=3)
    partition = owner._partitions[7]
    partition.postponed = roster.take(1, 0.0)
    roster.permits = 2
    assert owner.choose(4, 0, 0, 0.0) == []
    assert owner.ownerships == []
