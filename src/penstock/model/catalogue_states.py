"""The states of what the catalogue is about, and every step by which one moves on.

A state belongs to one scope: a shard, a map of keys to partitions in the catalogue, such a map on one shard, a
partition as one shard knows it. The tables hold themselves to the same steps by a trigger (`check_step`), and the
functions that make them are named here; tests compare the three. A shard that copies the lead's catalogue may have
missed some: `take_catalogue` alone writes states that no single step leads to.

docs/explanation/shards.md draws them, and says what is allowed meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COPIES", "STATES", "STEPS", "Step"]


class Step(NamedTuple):
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

STEPS: dict[str, tuple[Step, ...]] = {
    "shard": (
        Step(None, "joining", "reserve_shard"),
        # The databases that an app is first opened with.
        Step(None, "active", "enter_shard"),
        Step("joining", "active", "end_joining"),
        Step("active", "draining", "begin_draining"),
        Step("draining", "drained", "end_draining"),
    ),
    "queue_map": (
        Step(None, "announced", "set_map"),
        # The first of a queue, and where no other shard has partitions of the one before.
        Step(None, "open", "set_map"),
        Step("announced", "open", "open_map"),
        Step("announced", "withdrawn", "set_map"),
        Step("open", "replaced", "set_map"),
        Step("replaced", "drained", "drain_maps"),
    ),
    "map_here": (
        Step(None, "in_use", "set_map"),
        Step("in_use", "closed", "close_maps"),
    ),
    "partition": (
        Step(None, "unused", "partitions_for"),
        Step(None, "unused", "move_partitions"),
        Step("unused", "current", "set_map"),
        Step("current", "left", "set_map"),
        Step("current", "unused", "undo_map"),
        Step("left", "current", "set_map"),
        # On its own shard; and on the others, which are told.
        Step("left", "shut", "shut_partitions_left"),
        Step("left", "shut", "note_shut"),
        Step("unused", "shut", "shut_partitions_left"),
        Step("shut", "current", "set_map"),
    ),
}

# What writes states as another shard has them.
COPIES = "take_catalogue"
