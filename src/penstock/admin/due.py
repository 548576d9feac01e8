"""What is due when, added up over all shards."""

from __future__ import annotations

from collections.abc import Collection

from penstock.admin.answers import ask_everywhere, unavailable
from penstock.model.due import SPANS, Due, DueSpan
from penstock.shards.databases import Databases
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.inspect.due import read_due

__all__ = ["due"]


def due(databases: Databases, queues: Collection[str] | None = None) -> Due:
    """How many scheduled jobs are due in each span, of these queues or of all. NotFound."""
    partitions = None
    if queues is not None:
        entries = [databases.read(lambda connection: find_queue(connection, name)) for name in queues]  # noqa: B023
        partitions = [id_ for entry in entries for id_ in entry.partition_ids]
    answers = ask_everywhere(databases, lambda connection: read_due(connection, partitions))
    spans = [
        DueSpan(
            name=name,
            until=max((each[number].until for each in answers if each[number].until), default=None),  # type: ignore[type-var]
            jobs=sum(each[number].jobs for each in answers),
            is_exact=all(each[number].is_exact for each in answers),
        )
        for number, name in enumerate(SPANS)
    ]
    return Due(spans=spans, unavailable=unavailable(answers))
