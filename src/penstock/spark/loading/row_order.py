"""The order of a load that is written with `order_by`: each task sorts its rows, and the driver orders the tasks.

A data source cannot ask Spark for a shuffle. So each task tells, for every partition of the queue, the lowest and the
highest value it wrote there; the driver puts the tasks in the order of their lowest, and refuses where two of them
overlap in a partition. `penstock.spark.load` shuffles first, and never meets this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.loading.stage_writer import StageWriter
    from penstock.spark.loading.load_plan import LoadPlan
    from penstock.spark.loading.load_writer import StageReport

__all__ = ["Bounds", "order_tasks", "sort_batches"]

# A row's values to order by, each with whether it is missing: nulls come last.
Value: TypeAlias = tuple[tuple[bool, Any], ...]
Bounds: TypeAlias = tuple[Value, Value]


def sort_batches(
    plan: LoadPlan, batches: Iterator[pa.RecordBatch], writer: StageWriter, bounds: dict[int, Bounds]
) -> Iterator[pa.RecordBatch]:
    """The batches, sorted where that is asked for; then `bounds` gets what each partition of the queue received."""
    if not plan.order_by:
        yield from batches
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    given = list(batches)
    if not given:
        return
    table = pa.Table.from_batches(given)
    keys = [(name, "ascending") for name in plan.order_by]
    try:
        table = table.take(pc.sort_indices(table, sort_keys=keys))
    except pa.ArrowNotImplementedError:
        kinds = ", ".join(f"{name} is {table.schema.field(name).type}" for name in plan.order_by)
        raise InvalidInput("order_by", f"rows cannot be sorted by this ({kinds}); order by plain columns") from None
    name = plan.columns.key or ("key" if "key" in plan.columns.names else None)
    if name is None:
        _note_bounds(
            bounds,
            dict.fromkeys(range(len(plan.destination.partition_ids)), (0, table.num_rows - 1)),
            table,
            plan.order_by,
        )
    else:
        column = table.column(name).combine_chunks()
        text = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
        idempotency_keys: pa.Array | None = None
        if "idempotency_key" in plan.columns.names:
            idempotency_keys = table.column("idempotency_key").combine_chunks().cast(pa.string())
        numbers = writer.find_partitions(text, idempotency_keys).tolist()
        ends: dict[int, tuple[int, int]] = {}
        for row, number in enumerate(numbers):
            ends[number] = (ends.get(number, (row, row))[0], row)
        _note_bounds(bounds, ends, table, plan.order_by)
    yield from table.to_batches(max_chunksize=16_384)


def _note_bounds(
    bounds: dict[int, Bounds], ends: dict[int, tuple[int, int]], table: pa.Table, order_by: tuple[str, ...]
) -> None:
    for number, (first, last) in ends.items():
        bounds[number] = _read_value(table, order_by, first), _read_value(table, order_by, last)


def _read_value(table: pa.Table, order_by: tuple[str, ...], row: int) -> Value:
    found = []
    for name in order_by:
        try:
            found.append(table.column(name)[row].as_py())
        except (OverflowError, ValueError):
            raise InvalidInput(
                name,
                "no rows can be ordered by a date beyond the years 1 to 9999, or by text that is not UTF-8; mend "
                "such rows, or order by another column",
            ) from None
    return tuple((value is None, 0 if value is None else value) for value in found)


def order_tasks(order_by: Sequence[str], staged: Sequence[StageReport]) -> list[StageReport]:
    """The tasks in the order of what they hold, or InvalidInput where there is none."""
    lowest = sorted(
        (each for each in staged if each.bounds), key=lambda each: min(low for low, _ in each.bounds.values())
    )
    highest: dict[int, tuple[Value, int]] = {}
    for each in lowest:
        for number, (low, high) in each.bounds.items():
            before = highest.get(number)
            if before is not None and low < before[0]:
                raise InvalidInput(
                    "order_by",
                    f"Spark partitions {before[1]} and {each.spark_partition} both hold rows of partition {number} of "
                    f"the queue, and overlap in {', '.join(order_by)}; use penstock.spark.load, which sorts them first",
                )
            highest[number] = (high, each.spark_partition)
    return lowest
