"""An owner whose permits were lowered while it chose: what it chose is still ready, and starts when there is room."""

from __future__ import annotations

from penstock.engine.owned_partition import OwnedPartition
from penstock.engine.owner import Owner
from penstock.model.rules import QueueRules
from penstock.policy.job_sequence import HAS_HANDLER
from penstock.policy.roster import Roster
from penstock.storage.work.exchange import Turn
from penstock.storage.work.owner import Ownership


def owner_of(jobs: int, permits: int) -> tuple[Owner, Roster]:
    """An owner of one partition, in which so many jobs wait, each of a key of its own."""
    owner = Owner({1: {"t"}}, {})
    roster = Roster(QueueRules.declared("q", order="key", total_limit=10), 1, 0.0)
    roster.permits = permits
    roster.add([(job, b"k%d" % job, 5, 1, 0.0, "", 1, HAS_HANDLER) for job in range(jobs)])
    owner._partitions[7] = OwnedPartition(Ownership(7, 1, 1, is_surplus=False), roster, is_fair=False)
    return owner, roster


def test_what_was_chosen_with_permits_that_are_gone_starts_as_permits_come_and_none_is_lost() -> None:
    owner, roster = owner_of(5, permits=3)
    choices = owner.choose(4, 0, 0, 0.0)
    assert [choice.jobs for choice in choices] == [[0, 1, 2]]
    owner.note_leased(choices, Turn(short_of_permits={7}), 0.0)
    # None runs; so with one permit one starts, and it is the first.
    roster.permits = 1
    assert [choice.jobs for choice in owner.choose(4, 0, 0, 0.0)] == [[0]]
    assert owner.choose(4, 0, 0, 0.0) == []
    roster.permits = 2
    assert [choice.jobs for choice in owner.choose(4, 0, 0, 0.0)] == [[1]]
    roster.permits = 10
    assert [choice.jobs for choice in owner.choose(4, 0, 0, 0.0)] == [[2, 3, 4]]
    assert owner._partitions[7].postponed == []
