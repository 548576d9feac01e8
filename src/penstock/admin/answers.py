"""What several shards answered, as one answer.

A question is answered by the shards that are there, and whoever asks is told of the others in the log. A change that
did not reach every shard is an error, after all the others have made it. Nobody waits for a shard that is down, nor
longer than request_timeout for a table that somebody has locked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.errors import PartitionUnavailable
from penstock.shards.databases import Answers, Databases
from penstock.storage import Connection, Database

__all__ = ["ask_everywhere", "left_out", "refuse_missing", "some_jobs", "unavailable"]

log = logging.getLogger("penstock")
T = TypeVar("T")


def ask_everywhere(databases: Databases, act: Callable[[Connection], T]) -> Answers[T]:
    """What the shards that are there say; an error where none is, a line in the log where one is not."""
    return _refuse_or_log_missing(databases.each(act, writes=False))


def unavailable(answers: Answers[Any]) -> list[str]:
    """The names of the shards that did not answer."""
    return [str(number) for number in sorted(answers.missing)]


def left_out(databases: Iterable[Database]) -> list[str]:
    """The names of the shards that are known not to answer."""
    return [str(each.shard) for each in databases if each.breaker.is_down or each.is_left_out]


def refuse_missing(answers: Answers[Any], done: str) -> None:
    """An error where a shard did not answer, which also says what was done on the others."""
    for number in sorted(answers.missing):
        error = answers.missing[number]
        told = PartitionUnavailable(f"{done} on the shards that answered; {error}", shard=error.shard)
        told.outcome = "unknown" if answers.given else error.outcome
        raise told


def some_jobs(count: int) -> str:
    """So many jobs, in words."""
    return "1 job" if count == 1 else f"{count} jobs"


def _refuse_or_log_missing(answers: Answers[T]) -> Answers[T]:
    if answers.missing:
        first = answers.missing[min(answers.missing)]
        if not answers.given:
            raise first
        log.warning("left out: %s", "; ".join(str(answers.missing[number]) for number in sorted(answers.missing)))
    return answers
