"""How the claimants of a worker share its slots."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.slot_shares_world import SimulatedClaimant, World

from penstock.policy.slot_shares import ANSWER_SECONDS, SlotShares


def test_alone_a_claimant_is_granted_every_free_slot() -> None:
    slots = SlotShares(16)
    share = slots.join()
    share.running, share.waiting = 3, 2
    assert slots.ask(share, 0.0) == (11, 16)


def test_what_a_claim_under_way_has_reserved_is_granted_to_nobody_else() -> None:
    slots = SlotShares(16)
    first, second = slots.join(), slots.join()
    assert slots.ask(first, 0.0).slots == 16
    assert slots.ask(second, 0.001).slots == 0
    slots.note_claimed(first, 0.002, is_dry=True)
    assert slots.call_hungry(0.002) == [second]
    assert slots.ask(second, 0.003).slots == 16


def test_a_claim_that_takes_longer_than_a_moment_keeps_no_slot_from_others() -> None:
    slots = SlotShares(16)
    first, second = slots.join(), slots.join()
    slots.ask(first, 0.0)
    assert slots.ask(second, 0.01).slots == 0
    assert slots.patience(second, 0.01) == pytest.approx(ANSWER_SECONDS - 0.01)
    assert slots.ask(second, ANSWER_SECONDS).slots == 16


def test_a_claimant_that_is_called_and_does_not_come_is_passed_over() -> None:
    slots = SlotShares(1)
    busy, stuck = slots.join(), slots.join()
    slots.ask(busy, 0.0)
    slots.note_claimed(busy, 0.001, is_dry=False)
    busy.running = 1
    assert slots.ask(stuck, 0.1).slots == 0
    busy.running = 0
    assert slots.call_hungry(0.2) == [stuck]
    assert slots.ask(busy, 0.2).slots == 0, "it is the other's turn"
    assert slots.call_hungry(0.2 + ANSWER_SECONDS / 2) == []
    patience = slots.patience(busy, 0.2)
    assert patience is not None
    assert slots.ask(busy, 0.201 + patience).slots == 1


def test_with_one_slot_claimants_take_turns() -> None:
    world = World(1, SimulatedClaimant(100, 0.1), SimulatedClaimant(100, 0.1), SimulatedClaimant(100, 0.1))
    world.run(10.0)
    starts = sorted((at, number) for number, claimant in enumerate(world.claimants) for at in claimant.started)
    order = [number for _, number in starts]
    assert len(order) > 90
    assert all(set(order[n : n + 3]) == {0, 1, 2} for n in range(0, 90, 3))


@pytest.mark.parametrize("concurrency", [2, 3, 16])
@pytest.mark.parametrize("seconds", [(0.1, 0.1), (1.0, 0.05), (0.2, 0.001), (0.001, 0.002)])
def test_claimants_with_work_have_equal_parts_of_the_slots(concurrency: int, seconds: tuple[float, float]) -> None:
    first, second = SimulatedClaimant(1_000_000, seconds[0]), SimulatedClaimant(1_000_000, seconds[1])
    world = World(concurrency, first, second)
    length = 40 * max(seconds)
    world.run(length)
    assert world.most_running <= concurrency
    assert first.slot_seconds + second.slot_seconds > 0.9 * length * concurrency
    assert min(first.slot_seconds, second.slot_seconds) > 0.85 * length * (concurrency // 2)


def test_a_deep_claimant_does_not_starve_a_shallow_one_and_has_what_that_leaves() -> None:
    deep, shallow = SimulatedClaimant(100_000, 0.5), SimulatedClaimant(0, 0.5)
    world = World(16, deep, shallow)
    world.run(10.0)
    assert deep.slot_seconds > 0.95 * 16 * 10
    shallow.backlog = 12
    world.run(13.5)
    assert len(shallow.started) == 12
    before = deep.slot_seconds
    world.run(23.5)
    assert deep.slot_seconds - before > 0.95 * 16 * 10


def test_a_database_that_hangs_costs_the_others_a_moment() -> None:
    hanging, healthy = SimulatedClaimant(100_000, 0.2, hangs_at=5.0), SimulatedClaimant(100_000, 0.2)
    world = World(8, hanging, healthy)
    world.run(6.0)
    before = healthy.slot_seconds
    world.run(16.0)
    assert healthy.slot_seconds - before > 0.95 * 8 * 10


def test_a_slow_database_does_not_slow_the_others() -> None:
    slow, healthy = SimulatedClaimant(100_000, 0.1, claim_seconds=0.4), SimulatedClaimant(100_000, 0.1)
    world = World(8, slow, healthy)
    world.run(20.0)
    assert healthy.slot_seconds > 0.45 * 8 * 20
    assert slow.slot_seconds + healthy.slot_seconds > 0.9 * 8 * 20
    assert len(slow.started) > 80


given_claimants = st.tuples(
    st.integers(0, 60), st.sampled_from([0.001, 0.01, 0.05, 0.3]), st.sampled_from([0.0005, 0.005, 0.2])
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.lists(given_claimants, min_size=1, max_size=5))
def test_whatever_the_claimants_are_all_is_run_and_few_jobs_wait_unstarted(
    concurrency: int, given: list[tuple[int, float, float]]
) -> None:
    world = World(concurrency, *(SimulatedClaimant(*each) for each in given))
    world.run(200.0)
    assert world.most_running <= concurrency
    assert [len(claimant.started) for claimant in world.claimants] == [backlog for backlog, _, _ in given]
    for claimant in world.claimants:
        ahead = concurrency * 0.025 / claimant.job_seconds if claimant.job_seconds < 0.025 else 0
        assert claimant.most_waiting <= concurrency + ahead
