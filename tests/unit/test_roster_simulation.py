"""Thousands of short lives of a queue: order, limits and rates hold at every start, and nothing is left behind.

PENSTOCK_SEEDS says how many; a seed that failed is in the message, and alone it fails again.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.unit.roster_world import World

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "160"))
GROUPS = 4
# So many runs together have met every kind of trouble.
ENOUGH = 40
TROUBLE = ["cancelled", "dead letter retried", "gone", "halted", "handed over", "killed", "limit reached", "rescued"]
TROUBLE += ["resized", "retried", "followed", "run cut"]


def live(seed: int, steps: int = 300) -> World:
    world = World(seed)
    world.own()
    for _ in range(steps):
        world.step()
    world.drain()
    return world


@pytest.mark.parametrize("group", range(GROUPS))
def test_g5_g6_order_and_limits_hold_through_everything_and_nothing_starves(group: int) -> None:
    events: Counter[str] = Counter()
    for seed in range(group, SEEDS, GROUPS):
        try:
            events.update(live(seed).events)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    if SEEDS // GROUPS >= ENOUGH:
        assert [event for event in TROUBLE if not events[event]] == [], "the runs were too easy"
