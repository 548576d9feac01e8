"""The states of what the catalogue is about, and every step by which one moves on.

A state belongs to one scope: a shard, a map of keys to partitions in the catalogue, such a map on one shard, a
partition as one shard knows it. The tables hold themselves to the same steps by a trigger (`check_step`), and the
functions that make them are named here; tests compare the three. A shard that copies the lead's catalogue may have
missed some: `take_catalogue` alone writes states that no single step leads to.

docs/explanation/shards.md draws them, and says what is allowed meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COPIES", "STATES", "STEPS", "StateStep"]


class StateStep(NamedTuple):
    """From one state to the next, and the function that does it. From None: a new row."""

    before: str | None
    after: str
    by: str


# By table.
STATES: dict[str, tuple[str, ...]] = {
    "shard": ("joining", "active", "draining", "drained"),
    "queue_map": ("announced", "open", "replaced", "drained", "withdrawn"),
    "map_here": ("in_use", "closed"),
    "partition": ("unused", "current", "left", "shut"),
}

STEPS: dict[str, tuple[StateStep, ...]] = {
    "shard": (
        StateStep(None, "joining", "reserve_shard"),
        # The databases that an app is first opened with.
        StateStep(None, "active", "enter_shard"),
        StateStep("joining", "active", "end_joining"),
        StateStep("active", "draining", "begin_draining"),
        StateStep("draining", "drained", "end_draining"),
    ),
    "queue_map": (
        StateStep(None, "announced", "set_map"),
        # The first of a queue, and where no other shard has partitions of the one before.
        StateStep(None, "open", "set_map"),
        StateStep("announced", "open", "open_map"),
        StateStep("announced", "withdrawn", "set_map"),
        StateStep("open", "replaced", "set_map"),
        StateStep("open", "replaced", "delete_queue"),
        StateStep("replaced", "drained", "drain_maps"),
    ),
    "map_here": (
        StateStep(None, "in_use", "set_map"),
        StateStep(None, "in_use", "delete_queue"),
        StateStep("in_use", "closed", "close_maps"),
    ),
    "partition": (
        StateStep(None, "unused", "partitions_for"),
        StateStep(None, "unused", "move_partitions"),
        StateStep("unused", "current", "set_map"),
        StateStep("current", "left", "set_map"),
        StateStep("current", "left", "delete_queue"),
        StateStep("current", "unused", "undo_map"),
        StateStep("left", "current", "set_map"),
        # On its own shard; and on the others, which are told.
        StateStep("left", "shut", "shut_partitions_left"),
        StateStep("left", "shut", "note_shut"),
        StateStep("unused", "shut", "shut_partitions_left"),
        StateStep("shut", "current", "set_map"),
    ),
}

# What writes states as another shard has them.
COPIES = "take_catalogue"
