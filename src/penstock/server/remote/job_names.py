"""How jobs are named between a remote worker and its servers: the id, and a lease that is opaque to the worker.

That text has the shard, the lease's number and its token. It is no secret of anybody: a lease is this worker's, or its
end is not taken.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache

from penstock.errors import InvalidInput
from penstock.model.checks import HIGHEST_ID, checked_job_id
from penstock.server.remote.messages import LostJob
from penstock.server.values import Base64
from penstock.storage.work.remote_workers import NamedJob

__all__ = ["key_text", "lease_text", "lost_job", "read_name", "read_worker"]

_LEASE = re.compile(r"(\d{1,4})\.(\d{1,19})\.(\d{1,19})", re.ASCII)
_WORKER = re.compile(r"[1-9]\d{0,18}", re.ASCII)


def lease_text(shard: int, lease: int, token: int) -> str:
    """A lease, as a worker is told it."""
    return f"{shard}.{lease}.{token}"


def read_name(job: str, lease: str) -> tuple[int, NamedJob]:
    """The shard and the job that a worker names; `InvalidInput` where no server can have told it so."""
    id_ = checked_job_id(job, "job")
    shard, number, token = _read_lease(lease)
    return shard, NamedJob(id_, number, token)


@lru_cache(maxsize=1_000)  # Up to a thousand jobs of a poll have the same.
def _read_lease(lease: str) -> tuple[int, int, int]:
    match = _LEASE.fullmatch(lease)
    if match is None or any(int(number) > HIGHEST_ID for number in match.groups()):
        raise InvalidInput("lease", "it is no lease; give the one that came with the job")
    shard, number, token = map(int, match.groups())
    return shard, number, token


def lost_job(shard: int, named: NamedJob) -> LostJob:
    """The same, as a worker is told that it has lost it."""
    return LostJob(job=str(named.job), lease=lease_text(shard, named.lease, named.token))


def read_worker(worker: str) -> int | None:
    """The number of a worker; None where no worker can be called so."""
    return int(worker) if _WORKER.fullmatch(worker) and int(worker) <= HIGHEST_ID else None


def key_text(key: bytes | None) -> str | Base64 | None:
    """A key as JSON has it: text, where it is some."""
    if key is None:
        return None
    try:
        return bytes(key).decode()
    except UnicodeDecodeError:
        return Base64(base64=base64.b64encode(key).decode())
