"""The rule about keys that holds a ready job back, in words."""

from __future__ import annotations

from typing import Any

from penstock.policy.key_maps import KeyMaps
from penstock.storage.inspect.key_reasons import HeldBack

__all__ = ["key_reason"]


def key_reason(job_id: int, task: str, held: HeldBack) -> tuple[str, dict[str, Any]] | None:
    """The rule and the facts behind it; None where no rule about keys holds the job back."""
    facts: dict[str, Any] = {"owner": held.owner, "epoch": held.epoch}
    if held.key is not None and held.halted_by is not None:
        facts["head"] = held.halted_by
        advice = "a dead letter; retry it, or release" if held.can_retry else "its dead letter is gone; release"
        return f"behind key head {held.halted_by} (halted: {advice} the key)", facts
    if held.rules.per_key is not None and held.retry is not None and int(held.retry.job) != job_id:
        facts |= {"head": int(held.retry.job), "retries_at": held.retry.due_at}
        return f"behind key head {held.retry.job} (retries at {held.retry.due_at})", facts
    if held.owner is None:
        return "partition unowned: a worker takes it within a second or two", facts
    if held.rules.per_key is not None and held.key is not None:
        if len(held.running) >= held.rules.per_key:
            facts |= {"head": held.running[0], "running": held.running}
            if held.rules.per_key == 1:
                return f"behind key head {held.running[0]} (running on worker {held.running_on or held.owner})", facts
            named = ", ".join(map(str, held.running))
            return f"per_key {len(held.running)} of {held.rules.per_key}: held by {named}", facts
        if held.behind is not None:
            facts["head"] = held.behind
            if held.behind_task not in held.owner_knows:
                return f"behind key head {held.behind} ({_unknown(held, held.behind_task)})", facts
            return f"behind key head {held.behind} (ready)", facts
    if task not in held.owner_knows:
        return _unknown(held, task), facts
    if held.key is not None:
        maps = KeyMaps(held.partition_id)
        maps.change(held.maps.partitions, held.maps.open, held.maps.held)
        if maps.is_draining(held.key, held.epoch):
            return f"map epoch draining: what was routed before epoch {held.epoch} goes first", facts
    if held.rules.per_key_rate is not None and held.key is not None:
        return f"rate: at most {held.rules.per_key_rate} start of its key", facts
    if held.rules.rate is not None:
        return f"rate: at most {held.rules.rate} start in its partition", facts
    return None


def _unknown(held: HeldBack, task: str | None) -> str:
    return (
        f"worker {held.owner}, which owns the partition, does not know task {task!r}: "
        "let every worker of the queue know all its tasks"
    )
