"""By what the jobs of a page are chosen, as it stands in its URL, and what may be done to all of those."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.job_state import State
from penstock.server.dashboard.view import Given, View

__all__ = ["ACTS", "FILTERS", "Act", "as_body", "chosen_by", "is_dead_letter", "offered_acts"]

# By the name of a filter what it is called; the usual ones first.
FILTERS: Mapping[str, str] = {
    "queue": "Queue",
    "state": "State",
    "task": "Task",
    "key": "Key",
    "tag": "Tag",
    "load": "Load",
    "tenant": "Tenant",
    "created_by": "Created by",
    "partition": "Partition",
    "cause": "Cause",
    "key_base64": "Key, base64",
}
_NOT_ENDED = (State.SCHEDULED, State.BLOCKED, State.READY, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Act:
    """What is done to many jobs: to which, by which operation, and how it is told before and after."""

    name: str
    label: str
    does: str
    did: str
    takes: Collection[State]
    note: str = ""
    is_danger: bool = False
    has_reason: bool = False

    def fits(self, chosen: Mapping[str, str]) -> bool:
        """Whether there may be jobs among those that it is for."""
        return "state" not in chosen or chosen["state"] in self.takes

    def takes_job(self, job: Any) -> bool:
        """Whether it is for this job; a dead letter that was cleared stays failed, and is no dead letter any more."""
        return job.state in self.takes and (job.state is not State.FAILED or is_dead_letter(job))

    def operation(self, chosen: Mapping[str, str]) -> tuple[str, ...] | None:
        """The path of the operation for what is chosen so; None where there is none."""
        if self.name != "discard":
            return "jobs", self.name
        return ("queues", chosen["queue"], "purge") if {"queue", "state"} <= chosen.keys() else None


CANCEL = Act(
    "cancel",
    "Cancel",
    "Cancel {}",
    "{} cancelled, or asked to stop where they ran.",
    _NOT_ENDED,
    note="Those that wait end as cancelled; those that run are asked to stop. What has ended stays as it ended.",
    is_danger=True,
    has_reason=True,
)
RETRY = Act(
    "retry",
    "Retry",
    "Retry {}",
    "{} retried.",
    (State.FAILED, State.SCHEDULED),
    note="Dead letters are ready again, each for one more attempt; what waits for a time runs now.",
)
DISCARD = Act(
    "discard",
    "Discard",
    "Discard {}",
    "{} discarded.",
    (State.FAILED,),
    note="They stay failed in the history, and can be retried no more; what waited for them is cancelled for good.",
    is_danger=True,
)
ACTS: Mapping[str, Act] = {act.name: act for act in (RETRY, CANCEL, DISCARD)}


def is_dead_letter(job: Any) -> bool:
    """Whether it can be retried or cleared: what failed and was cleared has no cause any more."""
    return job.state is State.FAILED and job.cause is not None


def chosen_by(given: Given) -> dict[str, str]:
    """The filters that were given."""
    return {name: value for name in FILTERS if (value := given.text(name)) is not None}


def as_body(act: Act, chosen: Mapping[str, str]) -> dict[str, Any]:
    """The same as the body of an act."""
    body: dict[str, Any] = {name: value for name, value in chosen.items() if name != "key_base64"}
    if "key_base64" in chosen:
        body["key"] = {"base64": chosen["key_base64"]}
    if act is DISCARD:
        del body["queue"]
    return body


def offered_acts(view: View, chosen: Mapping[str, str]) -> list[Act]:
    """What whoever looks may do to all jobs that are chosen so; nothing where all there are would be meant."""
    if not chosen:
        return []
    return [
        act
        for act in ACTS.values()
        if act.fits(chosen) and (path := act.operation(chosen)) is not None and view.may("POST", *path)
    ]
