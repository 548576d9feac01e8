"""Loads among the load, without a JVM."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.loading.load_writer import LoadWriter

__all__ = ["LoadDriver"]


class LoadDriver:
    """A load as Spark's driver and its tasks make it, without a JVM: two tasks stage, the driver commits or dies."""

    def __init__(self, url: str, name: str, labels: list[str]) -> None:
        self._options = {"url": url, "queue": "work", "task": "plain", "load": name}
        self._labels = labels

    def run(self) -> None:
        writer = LoadWriter(StructType([StructField("label", StringType())]), False, self._options)
        half = len(self._labels) // 2
        parts = [self._labels[:half], self._labels[half:]]
        writer.commit([writer.write(iter([pa.record_batch({"label": part})])) for part in parts])
