"""A Spark driver for the faults: `python -m tests.fault.spark_driver` with its orders as JSON. Loads of 100,000 rows.

Tasks of each load meet trouble on their first attempt, each once: the folder it was given remembers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

import penstock.spark as ps
from penstock import App

__all__ = ["ROWS", "Orders", "troubled"]

ROWS = 100_000


class Orders(msgspec.Struct):
    """What the driver is told. `troubles`: by Spark partition, what its first attempt meets."""

    url: str
    names: list[str]
    folder: str
    master: str = "local[2,4]"
    troubles: dict[int, str] = {}


def troubled(orders: Orders, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What the rows of a task go through: all of them, and at the end its trouble, if it has one."""
    troubles, folder = orders.troubles, orders.folder

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        trouble = troubles.get(number)
        if trouble is None:
            return
        try:
            (Path(folder) / f"met-{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            return
        if trouble == "raise":
            raise OSError("a disk failed, as disks do")
        if trouble == "hang":
            while not (Path(folder) / "go on").exists():
                time.sleep(0.05)
        if trouble == "kill the executor":
            # This process was forked by a daemon, and that by the executor.
            executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    return run


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    spark = ps.session(orders.master, spark_executor_memory="512m")
    with App(orders.url) as app:
        for name in orders.names:
            frame = spark.range(0, ROWS, 1, 2).mapInArrow(troubled(orders, name), "id long")
            done = ps.load(frame, app, "loaded", "t", load=name)
            print(f"loaded {name} {done.rows} {done.is_new}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
