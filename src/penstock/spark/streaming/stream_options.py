"""The options of a stream of jobs, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.model.checks import checked_count, checked_name, checked_seconds
from penstock.spark.data_source.options import refuse_unknown
from penstock.storage.connection.urls import checked_urls

__all__ = ["StreamOptions", "read_stream_options"]

DEFAULT_MAX_JOBS = 10_000
DEFAULT_LEASE_SECONDS = 60.0
DEFAULT_PARTITIONS = 8
MOST_MAX_JOBS = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which jobs a stream claims, under leases of what length, how many at a time, and by how many tasks it is read."""

    url: str
    queue: str
    # None: any.
    tasks: tuple[str, ...] | None
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    max_jobs: int = DEFAULT_MAX_JOBS
    partitions: int = DEFAULT_PARTITIONS


def read_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Check what a user gave."""
    given = {name.lower(): value for name, value in options.items()}
    refuse_unknown(given, ("url", "queue", "max_jobs", "tasks", "lease", "partitions"), "a stream of jobs")
    for name in ("url", "queue"):
        if name not in given:
            raise InvalidInput(name, f'it is missing; write .option("{name}", …)')
    tasks = [checked_name("tasks", task.strip()) for task in given["tasks"].split(",")] if "tasks" in given else None
    lease = _read_number("lease", given.get("lease", str(DEFAULT_LEASE_SECONDS)))
    url = "\n".join(checked_urls(given["url"]))
    queue = checked_name("queue", given["queue"])
    lease_seconds = checked_seconds("lease", lease)
    max_jobs = _read_number("max_jobs", given.get("max_jobs", str(DEFAULT_MAX_JOBS)))
    partitions = _read_number("partitions", given.get("partitions", str(DEFAULT_PARTITIONS)))
    return StreamOptions(
        url=url,
        queue=queue,
        tasks=None if tasks is None else tuple(tasks),
        lease_seconds=lease_seconds,
        max_jobs=checked_count("max_jobs", max_jobs, most=MOST_MAX_JOBS),
        partitions=checked_count("partitions", partitions, most=10_000),
    )


def _read_number(field: str, text: str) -> int | float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput(field, f"{text!a} is no number") from None
    return int(number) if number.is_integer() else number
