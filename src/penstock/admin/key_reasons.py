"""The rule about keys that holds a ready job back, in words."""

from __future__ import annotations

from typing import Any

from penstock.policy.key_maps import KeyMaps
from penstock.storage.inspect.key_reasons import KeyFacts

__all__ = ["key_reason"]


def key_reason(job_id: int, task: str, seen: KeyFacts) -> tuple[str, dict[str, Any]] | None:
    """The rule and the facts behind it; None where no rule about keys holds the job back."""
    facts: dict[str, Any] = {"owner": seen.owner, "epoch": seen.epoch}
    if seen.key is not None and seen.halted_by is not None:
        facts |= {"head": seen.halted_by, "halted": True}
        advice = "a dead letter; retry it, or release" if seen.can_retry else "its dead letter is gone; release"
        return f"behind key head {seen.halted_by} (halted: {advice} the key)", facts
    if seen.rules.per_key is not None and seen.retry is not None and int(seen.retry.job) != job_id:
        facts |= {"head": int(seen.retry.job), "retries_at": seen.retry.due_at}
        return f"behind key head {seen.retry.job} (retries at {seen.retry.due_at})", facts
    if seen.owner is None:
        return "partition unowned: a worker takes it within a second or two", facts
    if seen.rules.per_key is not None and seen.key is not None:
        if len(seen.running) >= seen.rules.per_key:
            facts |= {"head": seen.running[0], "running": seen.running}
            if seen.rules.per_key == 1:
                where = f"running on worker {seen.running_on or seen.owner}"
                if seen.is_holder_gone:
                    where = f"was {where}, which is gone: it runs again when a worker's upkeep finds it"
                return f"behind key head {seen.running[0]} ({where})", facts
            named = ", ".join(map(str, seen.running))
            return f"per_key {len(seen.running)} of {seen.rules.per_key}: held by {named}", facts
        if seen.earlier_job is not None:
            facts["head"] = seen.earlier_job
            if seen.earlier_task not in seen.owner_knows:
                return f"behind key head {seen.earlier_job} ({_unknown(seen, seen.earlier_task)})", facts
            return f"behind key head {seen.earlier_job} (ready)", facts
    if task not in seen.owner_knows:
        return _unknown(seen, task), facts
    if seen.key is not None:
        maps = KeyMaps(seen.partition_id)
        maps.change(seen.key_maps.partitions, seen.key_maps.open, seen.key_maps.held)
        if maps.is_draining(seen.key, seen.epoch):
            return f"map epoch draining: what was routed before epoch {seen.epoch} goes first", facts
    if seen.rules.per_key_rate is not None and seen.key is not None:
        return f"rate: at most {seen.rules.per_key_rate} start of its key", facts
    if seen.rules.rate is not None:
        return f"rate: at most {seen.rules.rate} start in its partition", facts
    return None


def _unknown(seen: KeyFacts, task: str | None) -> str:
    return (
        f"worker {seen.owner}, which owns the partition, does not know task {task!r}: "
        "let every worker of the queue know all its tasks"
    )
