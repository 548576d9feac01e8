"""Commands about keys and where they go: which are blocked, to release one, to resize a queue."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.shared_options import AsJson, QueueName, Url
from penstock.cli.terminal import Column, say, show_json, show_table
from penstock.cli.times import ago
from penstock.model import Resize
from penstock.model.records import record

__all__ = ["blocked_keys", "release", "resize", "show_progress"]


def blocked_keys(queue: QueueName, url: Url = None, as_json: AsJson = False) -> None:
    """List the keys of a queue that wait for a retry, or for a person."""
    with open_answering_app(url) as app:
        found = app.blocked_keys(queue)
        missing = unavailable(app)
    if as_json:
        show_json({"keys": record(found), "unavailable": missing})
        return
    if not found:
        say(f"no key of queue {queue!r} is blocked")
        return
    columns = [Column("key", is_cut=True), Column("waiting", "right"), Column("since"), Column("why", is_cut=True)]
    show_table(
        columns,
        [
            [each.key, f"{each.waiting:,}{'+' if each.may_be_more else ''}", ago(each.since), each.reason]
            for each in found
        ],
    )


def release(
    queue: QueueName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, as text.")],
    is_base64: Annotated[bool, typer.Option("--base64", help="KEY is base64, for one that is no text.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a halted key go on."""
    with open_answering_app(url) as app:
        app.release(queue, _decode(key) if is_base64 else key)
    if as_json:
        show_json({"queue": queue, "key": {"base64": key} if is_base64 else key})
    else:
        say(f"key {key!r} of queue {queue!r} goes on")


def resize(
    queue: QueueName,
    partitions: Annotated[int, typer.Argument(metavar="PARTITIONS", help="How many it is to have.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a queue another number of partitions; again to see how far it is."""
    with open_answering_app(url) as app:
        done = app.resize(queue, partitions=partitions)
    said = f"queue {queue!r} has {done.partitions} partition{'' if done.partitions == 1 else 's'}"
    show_progress(done, said, as_json)


def show_progress(done: Resize, said: str, as_json: bool) -> None:
    """What was done to the partitions of a queue, and what drains still."""
    if as_json:
        show_json(record(done))
        return
    say(said)
    if done.draining:
        columns = [Column("still drains", is_cut=True), Column("jobs", "right")]
        show_table(columns, [[name, f"{jobs:,}"] for name, jobs in done.draining])
    elif not done.is_through:
        say("keys that moved still wait: for a producer's open transaction, or for a key that is halted")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise typer.BadParameter("KEY is not base64") from None
