"""Why ready jobs do not start, where it is not a matter of the one job: a paused queue, or no worker for it.

It is one question for a whole page, that of what needs attention; a single job is explained on its own page.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.dashboard.view import View

__all__ = ["HeldQueues", "read_held_queues"]


@dataclass(frozen=True, slots=True)
class HeldQueues:
    """Queues in which jobs wait that are paused, or that no worker serves; and tasks that no worker has, by queue."""

    paused: frozenset[str] = frozenset()
    unserved: frozenset[str] = frozenset()
    unserved_tasks: frozenset[tuple[str, str]] = frozenset()

    def why(self, queue: str, task: str) -> str:
        """Why a ready job does not start; empty where nothing is known here."""
        if queue in self.paused:
            return "its queue is paused"
        if queue in self.unserved:
            return "no worker serves its queue"
        return "no worker has its task" if (queue, task) in self.unserved_tasks else ""


def read_held_queues(view: View) -> HeldQueues:
    """What whoever looks may know of that."""
    if view.caller.tenant is not None:
        # What is asked tells of others, too.
        return HeldQueues()
    found = view.api.get("attention").attention
    return HeldQueues(
        frozenset(each.queue for each in found if each.kind == "paused-queue"),
        frozenset(each.queue for each in found if each.kind == "no-worker"),
        frozenset((each.queue, each.task) for each in found if each.kind == "unserved-task"),
    )
