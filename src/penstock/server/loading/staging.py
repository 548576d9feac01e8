"""Writing the jobs of a body while the next rows are read: in chunks, two at a time, each a stage of its own.

The chunks are published in the order in which they were filled, whichever of them was written first.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from penstock.loading.destination import Destination
from penstock.loading.job_columns import JobColumns
from penstock.loading.stage_writer import StageWriter

__all__ = ["ChunkedStage"]

# Fewer than a task of Spark gathers: besides the chunk that is being filled, two are in memory whatever comes.
CHUNK_ROWS = 32_768
CHUNK_BYTES = 8 * 1024 * 1024
_WRITERS = 2


class ChunkedStage:
    """The stages of one body. Whoever leaves the block has nothing running any more."""

    def __init__(self, destination: Destination, load: str) -> None:
        self._destination = destination
        self._load = load
        self._threads = ThreadPoolExecutor(_WRITERS, thread_name_prefix="penstock-stage")
        self._writing: deque[Future[None]] = deque()
        self._writers: list[StageWriter] = []
        self._chunk: list[JobColumns] = []
        self._rows = 0
        self._bytes = 0

    def add(self, jobs: JobColumns) -> None:
        """Take jobs in; raises what went wrong with earlier ones."""
        self._chunk.append(jobs)
        self._rows += len(jobs)
        self._bytes += jobs.args.nbytes
        if self._rows >= CHUNK_ROWS or self._bytes >= CHUNK_BYTES:
            self._write()

    def finish(self) -> dict[int, list[tuple[str, int]]]:
        """Write what is left; by shard, each stage that it has some of, in order, and how many ranges."""
        self._write()
        self._wait_for(0)
        stages: dict[int, list[tuple[str, int]]] = {}
        for writer in self._writers:
            for number, count in writer.ranges.items():
                stages.setdefault(number, []).append((writer.stage, count))
        return stages

    def stop(self) -> None:
        """Write nothing more; what is being written is waited for."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    @property
    def names(self) -> dict[int, list[str]]:
        """The stages by every shard that may have some of them, whether or not that is known."""
        names = [writer.stage for writer in self._writers]
        return dict.fromkeys(set(self._destination.partition_shards), names)

    def _write(self) -> None:
        """Have the chunk written, as soon as fewer than two others are."""
        self._wait_for(_WRITERS - 1)
        # What has no key begins with another partition in each chunk.
        writer = StageWriter(self._destination, self._load, len(self._writers))
        self._writers.append(writer)
        self._writing.append(self._threads.submit(_write_chunk, writer, self._chunk))
        self._chunk, self._rows, self._bytes = [], 0, 0

    def _wait_for(self, most: int) -> None:
        while len(self._writing) > most:
            self._writing.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _write_chunk(writer: StageWriter, chunk: list[JobColumns]) -> None:
    while chunk:
        writer.add(chunk.pop(0))
    writer.flush()
