"""`receive_load`: a body becomes a load, exactly once for its name.

What arrives is staged, where nobody can claim it, under a name drawn for this body alone; only when the body was
received whole is it published, everywhere or nowhere. So a body that is cut, a row that is bad and a server that dies
leave nothing behind that could run. Two bodies of one name at the same time both stage; the one that is whole first is
published, and the other finds it so and lets go of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing

from penstock.app import App
from penstock.errors import InvalidInput
from penstock.loading.declared_tasks import check_tasks
from penstock.loading.destination import Destination, find_destination
from penstock.loading.job_columns import JobColumns
from penstock.server.loading.content import ARROW, CSV, NDJSON, PARQUET, decompress, find_format
from penstock.server.loading.load_request import LoadLimits, LoadReceipt, LoadRequest
from penstock.server.loading.refusing import refuse_row
from penstock.server.loading.staging import ChunkedStage
from penstock.shards.databases import Databases
from penstock.shards.decided_loads import publish_decided
from penstock.shards.load_commit import Published
from penstock.shards.membership import read_membership
from penstock.shards.publishing import drop_stages, find_published, publish
from penstock.shards.shard_urls import ShardUrls
from penstock.storage.catalogue.queues import find_queue
from penstock.task.definition import TaskDefinition

__all__ = ["receive_load"]

# How many loads under one name may write at the same moment; others wait between two chunks.
_CONNECTIONS = 4


def receive_load(
    app: App, request: LoadRequest, chunks: Iterable[bytes], limits: LoadLimits | None = None
) -> LoadReceipt:
    """Load a body. `chunks` blocks until more of it has come, ends where the body does, and raises where it was cut.

    A name that was loaded before is answered without a look at the body. Nothing is enqueued where this raises, unless
    it is `PartitionUnavailable` that says that the load is decided.
    """
    request.check()
    limits = limits or LoadLimits()
    form = find_format(request.content_type)
    if request.types is not None and form != CSV:
        raise InvalidInput("types", f"they are of a CSV's columns, and {form} has its own; leave them out")
    body = decompress(chunks, request.content_encoding, form)
    databases: Databases = app.databases
    known = _find_known(databases, request)
    if known is not None:
        return _receipt(request, known)
    tasks: Mapping[str, TaskDefinition] = app.tasks.get(request.queue, {})
    if request.task is not None:
        check_tasks(tasks, request.queue, [request.task])
    destination = _find_destination(databases, request.queue)
    with ChunkedStage(destination, request.name) as stage:
        try:
            with closing(_read(form, request, tasks, body, limits)) as batches:
                _stage(stage, batches, request, limits)
            stages = stage.finish()
            published = publish(
                databases,
                request.name,
                request.queue,
                0,
                stages,
                homes=destination.homes,
                is_stream=False,
                trace=request.trace,
            )
        except BaseException:
            stage.stop()
            drop_stages(databases, stage.names)
            raise
    if not published.is_new:
        drop_stages(databases, stage.names)
    return _receipt(request, published)


def _find_known(databases: Databases, request: LoadRequest) -> Published | None:
    """What was published under this name before; then nothing of it is left to be published."""
    databases.read(lambda connection: find_queue(connection, request.queue))
    known = find_published(databases, request.name, request.queue, 0, is_stream=False)
    if known is None:
        return None
    publish_decided(databases, request.name)
    return find_published(databases, request.name, request.queue, 0, is_stream=False)


def _find_destination(databases: Databases, queue: str) -> Destination:
    entry = databases.read(lambda connection: find_queue(connection, queue))
    silent = frozenset(databases.each(read_membership).missing)
    shards = ShardUrls({each.shard: each.url for each in databases}, databases.lead.shard, silent)
    for number in set(entry.partition_shards[: entry.partition_count]):
        databases.of(number)
    # Whether its jobs have a key is not known before they are read.
    return find_destination(shards, queue, entry, _CONNECTIONS, has_key=True)


def _read(
    form: str,
    request: LoadRequest,
    tasks: Mapping[str, TaskDefinition],
    body: Iterator[bytes],
    limits: LoadLimits,
) -> Generator[JobColumns, None, None]:
    """The jobs of a body, by its format. Each is imported when it is used: NDJSON needs few of Arrow's parts."""
    if form == NDJSON:
        from penstock.server.loading.json_rows import read_json

        return read_json(request, tasks, body, limits)
    if form == CSV:
        from penstock.server.loading.csv_rows import read_csv

        return read_csv(request, tasks, body, limits)
    if form == ARROW:
        from penstock.server.loading.arrow_rows import read_arrow

        return read_arrow(request, tasks, body, limits)
    assert form == PARQUET  # noqa: S101
    from penstock.server.loading.parquet_rows import read_parquet

    return read_parquet(request, tasks, body, limits)


def _stage(stage: ChunkedStage, batches: Iterable[JobColumns], request: LoadRequest, limits: LoadLimits) -> None:
    rows = 0
    for jobs in batches:
        if jobs.bad:
            raise refuse_row(jobs.bad[0])
        rows += len(jobs)
        if rows > limits.rows:
            raise InvalidInput("body", f"it has more than {limits.rows} rows; send several loads")
        stage.add(jobs)
    if request.rows is not None and rows != request.rows:
        raise InvalidInput(
            "rows", f"{rows} rows came, and there should be {request.rows}. Nothing was enqueued; send all of them"
        )


def _receipt(request: LoadRequest, published: Published) -> LoadReceipt:
    return LoadReceipt(name=request.name, rows=published.rows, duplicates=published.duplicates, is_new=published.is_new)
