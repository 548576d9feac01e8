"""What is read back, as JSON carries it: ids as text, because they pass what JavaScript's numbers can hold."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

from penstock.model import AuditEntry, BlockedKey, Cron, Explanation, Job, WorkerInfo

__all__ = ["audit_record", "blocked_key_record", "cron_record", "explanation_record", "job_record", "worker_record"]


def job_record(job: Job) -> dict[str, Any]:
    """A job."""
    return asdict(job) | {"id": str(job.id), "after": [str(parent) for parent in job.after], "key": _key(job.key)}


def worker_record(worker: WorkerInfo) -> dict[str, Any]:
    """A worker."""
    return asdict(worker) | {"id": str(worker.id)}


def cron_record(cron: Cron) -> dict[str, Any]:
    """A cron entry."""
    return asdict(cron) | {"key": _key(cron.key)}


def blocked_key_record(blocked: BlockedKey) -> dict[str, Any]:
    """A key that waits."""
    return asdict(blocked) | {"key": _key(blocked.key), "job_id": str(blocked.job_id)}


def audit_record(entry: AuditEntry) -> dict[str, Any]:
    """An entry of the audit."""
    return asdict(entry) | {"id": str(entry.id)}


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """Why a job is not running."""
    detail = dict(explanation.detail)
    for name in {"parents", "dead"} & detail.keys():
        detail[name] = [str(id_) for id_ in detail[name]]
    return {
        "job_id": str(explanation.job_id),
        "state": explanation.state,
        "reason": explanation.reason,
        "detail": detail,
    }


def _key(key: str | bytes | None) -> str | dict[str, str] | None:
    """A key that is no text says so."""
    return {"base64": base64.b64encode(key).decode()} if isinstance(key, bytes) else key
