"""Writing a load: tasks stage, the driver publishes.

A task may run twice, at the same time even, and may be killed without a word; so what it writes lies under a name
drawn for that attempt, where nobody can claim it. The names of the attempts that Spark counts come back to the driver,
and `commit` publishes just these, everywhere or nowhere, once for each (load, batch). A second commit does nothing, an
abort touches only what is staged, and what nobody ever names is dropped by upkeep.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import InvalidInput, PenstockError
from penstock.spark.data_source.error_codes import encode_errors
from penstock.spark.loading.load_plan import LoadPlan, plan_load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.loading.job_columns import BadRow
    from penstock.spark.loading.row_order import Bounds

__all__ = ["LoadWriter", "StreamWriter"]

log = logging.getLogger("penstock")

MOST_BAD_ROWS = 100_000


@dataclass(slots=True)
class StageReport(WriterCommitMessage):
    """What one task tells the driver: the name it staged under, how many ranges on each shard, its bad rows, and with
    `order_by` the bounds of what each partition of the queue received. `query` is the id of the stream it belongs to,
    which the stream's checkpoint keeps.
    """

    spark_partition: int
    stage: str = ""
    ranges: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    query: str = ""
    bad: list[BadRow] = field(default_factory=list)
    bounds: dict[int, Bounds] = field(default_factory=dict)


class LoadWriter(DataSourceArrowWriter):
    """`df.write.format("penstock")`."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        with encode_errors():
            self._plan = plan_load(options, schema, overwrite, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StageReport:
        with encode_errors():
            return _stage_rows(self._plan, self._plan.name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with encode_errors():
            _publish(self._plan, self._plan.name, 0, _stage_reports(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _drop_stages(self._plan, _stage_reports(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("penstock")`. Built anew for each batch, and again for its commit."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        with encode_errors():
            # Spark says "overwrite" where a stream's output mode is "complete".
            self._plan = plan_load(options, schema, overwrite, is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StageReport:
        with encode_errors():
            query = TaskContext.get().getLocalProperty("sql.streaming.queryId") or ""  # type: ignore[union-attr]
            staged = _stage_rows(self._plan, self._name(query), iterator)
            staged.query = query
            return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _stage_reports(messages)
        if not any(each.rows or each.bad for each in staged):
            return
        with encode_errors():
            _publish(self._plan, self._name(staged[0].query), batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _drop_stages(self._plan, _stage_reports(messages))

    def _name(self, query: str) -> str:
        return self._plan.name or f"stream-{query}"


def _stage_reports(messages: Sequence[WriterCommitMessage | None]) -> list[StageReport]:
    return [message for message in messages if isinstance(message, StageReport)]


def _stage_rows(plan: LoadPlan, load: str, batches: Iterator[pa.RecordBatch]) -> StageReport:
    """Stage the rows of one Spark partition."""
    from penstock.loading.row_reader import RowReader
    from penstock.loading.stage_writer import StageWriter
    from penstock.spark.loading.column_types import read_variant
    from penstock.spark.loading.row_order import sort_batches

    context = TaskContext.get()
    staged = StageReport(context.partitionId() if context is not None else 0)
    if plan.published is not None:
        return staged
    writer = StageWriter(plan.destination, load, staged.spark_partition)
    reader = RowReader(plan.columns, read_variant)
    for batch in sort_batches(plan, batches, writer, staged.bounds):
        jobs = reader.read(batch)
        staged.bad += jobs.bad
        if staged.bad and plan.bad_rows is None:
            # The driver refuses the load when it sees the report. Raising here would make Spark run the task again,
            # with the same row.
            break
        if len(staged.bad) > MOST_BAD_ROWS:
            raise PenstockError(
                f"more than {MOST_BAD_ROWS:,} rows of Spark partition {staged.spark_partition} are bad, the last one "
                f"since {staged.bad[-1].field}: {staged.bad[-1].problem}; nothing was enqueued: mend the "
                "data, and load it again"
            )
        staged.rows += len(jobs)
        writer.add(jobs)
    else:
        writer.flush()
    # Reported where the load is refused, too: the driver drops what was staged until then.
    staged.stage, staged.ranges = writer.stage, dict(writer.ranges)
    return staged


def _bad_row_error(staged: StageReport) -> InvalidInput:
    bad = staged.bad[0]
    where = f"row {bad.row} of Spark partition {staged.spark_partition}"
    return InvalidInput(
        bad.field, f"{bad.problem} ({where}: {bad.shown()}). Nothing was enqueued; mend it, or set bad_rows to a folder"
    )


def _publish(plan: LoadPlan, name: str, batch: int, staged: Sequence[StageReport]) -> None:
    from penstock.shards.decided_loads import publish_decided
    from penstock.shards.publishing import find_published, publish
    from penstock.spark.loading.bad_rows import write_bad_rows
    from penstock.spark.loading.row_order import order_tasks

    if plan.published is not None:
        with plan.destination.shards.open() as databases:
            publish_decided(databases, name)
        log.warning(
            "load %r was published at %s with %d rows: nothing was loaded again",
            name,
            plan.published.published_at,
            plan.published.rows,
        )
        return
    staged = sorted(staged, key=lambda each: each.spark_partition)
    if plan.bad_rows is None:
        for each in staged:
            if each.bad:
                raise _bad_row_error(each)
    if plan.order_by:
        staged = order_tasks(plan.order_by, staged)
    with plan.destination.shards.open() as databases:
        bad = [(each.spark_partition, row) for each in staged for row in each.bad]
        if plan.bad_rows is not None and bad:
            known = find_published(databases, name, plan.destination.queue, batch, is_stream=plan.is_stream)
            if known is None:
                write_bad_rows(plan.bad_rows, f"{name}-{batch}" if plan.is_stream else name, bad)
        published = publish(
            databases,
            name,
            plan.destination.queue,
            batch,
            _group_by_shard(staged),
            homes=plan.destination.homes,
            origin=next((each.query for each in staged if each.query), plan.run),
            is_stream=plan.is_stream,
            bad_rows=len(bad),
            trace=plan.trace,
        )
    if not published.is_new:
        log.warning("batch %d of load %r was published before: nothing was loaded again", batch, name)
        _drop_stages(plan, staged)


def _drop_stages(plan: LoadPlan, staged: Sequence[StageReport]) -> None:
    from penstock.shards.publishing import drop_stages

    stages = _group_by_shard(staged)
    if stages:
        with plan.destination.shards.open() as databases:
            drop_stages(databases, {number: [stage for stage, _ in each] for number, each in stages.items()})


def _group_by_shard(staged: Sequence[StageReport]) -> dict[int, list[tuple[str, int]]]:
    """The stages that lie on each shard, in order, with how many ranges they have there."""
    stages: dict[int, list[tuple[str, int]]] = {}
    for each in staged:
        for number, ranges in each.ranges.items():
            stages.setdefault(number, []).append((each.stage, ranges))
    return stages
