"""Shards: whether each answers, what is on it, and to drain one."""

from __future__ import annotations

from typing import Any

from penstock.drawing.formatting import count
from penstock.errors import NotFound
from penstock.server.dashboard.confirmation import ask
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View
from penstock.server.problem import ProblemError

__all__ = ["shards"]

shards = Pages()


@shards.show("/shards")
def show_shards(view: View) -> Shown:
    """All of them, those that are being drained with how far they are."""
    found = view.api.get("shards").shards
    drains = {
        shard.name: view.api.get_if_allowed("shards", shard.name, "drain")
        for shard in found
        if shard.state == "draining" and shard.health != "down"
    }
    return Shown("shards.html", "Shards", {"shards": found, "drains": drains})


@shards.show("/shards/{shard}/drain")
def ask_to_drain(view: View, shard: str) -> Shown:
    """What draining it means."""
    view.api.check_may("POST", "shards", shard, "drain")
    every = view.api.get("shards").shards
    found: Any = next((each for each in every if each.name == shard), None)
    if found is None:
        raise NotFound(f"there is no shard {shard[:40]}; the page of shards has those there are")
    if found.health == "down":
        raise ProblemError("partition-unavailable", f"shard {shard} does not answer, so nothing can move from it")
    others = sum(each.state == "active" for each in every) - (found.state == "active")
    sentences = [
        f"{_of(found.partitions, 'partition')} with {_of(found.queued, 'ready job')} and "
        f"{_of(found.running, 'running job')} move to {_others(others)}, while all of it is used: "
        "nothing stops, and order per key is kept.",
        "What runs ends there; what waits is carried over, with halted keys, idempotency keys and schedules. Then the "
        "database may be taken away, and with it the history of the jobs that ended there.",
        "Workers go on with it by themselves, and it may take a while. It is not undone by a button.",
    ]
    return ask(f"Drain shard {shard}?", sentences, f"Drain shard {shard}", view.url("shards"))


@shards.act("/shards/{shard}/drain")
def drain_shard(view: View, shard: str) -> Done:
    """Begin, or go on."""
    done = view.api.send("POST", "shards", shard, "drain")
    left = sum(each.count for each in done.rest)
    said = (
        f"Shard {shard} is drained: its database may be taken away."
        if done.state == "drained"
        else f"Shard {shard} is being drained: {count(left)} things are left."
    )
    return Done(view.url("shards"), said)


def _others(number: int) -> str:
    return "the other shard" if number == 1 else f"the {count(number)} other shards"


def _of(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"
