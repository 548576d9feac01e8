"""A Spark driver for the faults: `python -m tests.fault.spark_processor URL`. It runs the jobs of an ordered queue."""

from __future__ import annotations

import sys
import time

import pyarrow as pa

import penstock.spark as ps
from penstock import App

__all__ = ["LEASE_SECONDS", "moments"]

LEASE_SECONDS = 1.0


def moments(batch: pa.RecordBatch) -> list[ps.Ok]:
    """When the batch began and ended, by a clock that all processes of this machine share."""
    began = time.monotonic_ns()
    time.sleep(0.02)
    return [ps.Ok([began, time.monotonic_ns()])] * batch.num_rows


def main() -> None:
    with App(sys.argv[1], lease=LEASE_SECONDS) as app:
        done = ps.process(ps.session("local[2]"), app, "updates", moments, batch_size=100)
    print(f"processed {done.succeeded}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
