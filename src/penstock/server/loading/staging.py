"""Writing a stage while the next rows are read: a thread of its own, a few batches behind at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from penstock.loading.destination import Destination
from penstock.loading.job_columns import JobColumns
from penstock.loading.stage_writer import StageWriter

__all__ = ["BackgroundStage"]

# Smaller chunks than Spark's tasks write: what is in memory of a body is the same whatever its length, and small.
CHUNK_ROWS = 65_536
CHUNK_BYTES = 16 * 1024 * 1024
_MOST_WAITING = 4


class BackgroundStage:
    """The stage of one body. Whoever leaves the block has nothing running any more."""

    def __init__(self, destination: Destination, load: str) -> None:
        self._writer = StageWriter(destination, load, chunk_rows=CHUNK_ROWS, chunk_bytes=CHUNK_BYTES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-load")
        self._waiting: deque[Future[None]] = deque()
        # All shards that may have some of it.
        self._shards = frozenset(destination.partition_shards)

    def add(self, jobs: JobColumns) -> None:
        """Take jobs in; raises what went wrong with earlier ones."""
        self._waiting.append(self._thread.submit(self._writer.add, jobs))
        while self._waiting and (len(self._waiting) > _MOST_WAITING or self._waiting[0].done()):
            self._waiting.popleft().result()

    def finish(self) -> dict[int, list[tuple[str, int]]]:
        """Write what is left; by shard, the stage and how many ranges it has there."""
        self._waiting.append(self._thread.submit(self._writer.flush))
        while self._waiting:
            self._waiting.popleft().result()
        return {number: [(self._writer.stage, count)] for number, count in self._writer.ranges.items()}

    def stop(self) -> None:
        """Write nothing more; what is being written is waited for."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    @property
    def names(self) -> Mapping[int, list[str]]:
        """The stage by every shard that may have some of it, whether or not that is known."""
        return {number: [self._writer.stage] for number in self._shards}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
