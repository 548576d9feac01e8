"""One run of the handler: what it said of each row, or what it raised, as the ends that are settled.

An outcome ends its own row, and None says that all rows went well. A handler that raises ends every row as a task's
handler would that raised the same: tried again with the task's backoff, until its attempts have run out. One that gives
anything else breaks its contract, and would with every batch: its rows go back as they were, and the run ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from penstock.clock import system, ticks
from penstock.errors import InvalidInput
from penstock.model.checks import storable_text
from penstock.model.encoding import encode_result
from penstock.model.error_text import describe
from penstock.spark.processing.row_outcome import Dead, Ok, Outcome, RetryAfter
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work.leases import Lease
from penstock.storage.work.settle import End, Succeeded
from penstock.task.definition import TaskDefinition
from penstock.task.verdict import Verdict, judge

__all__ = ["BatchResult", "Handler", "LeasedBatch", "run_batch"]

Handler: TypeAlias = Callable[[pa.RecordBatch], Sequence[Outcome] | None]


@dataclass(slots=True)
class LeasedBatch:
    """Jobs under leases, row by row: the lease of each, its position, its task; and what the handler is given."""

    leases: list[Lease]
    positions: list[int]
    tasks: list[str]
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def attempts(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By lease and position, the job and which attempt this is."""
        return {
            (lease.id, position): (lease.range * RANGE + position, lease.attempt)
            for lease, position in zip(self.leases, self.positions, strict=True)
        }


@dataclass(slots=True)
class BatchResult:
    """A batch that has run: what is to be settled, and how each row ended."""

    batch: LeasedBatch | None = None
    succeeded: list[Succeeded] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    # By row; None: it succeeded.
    verdicts: list[Verdict | None] = field(default_factory=list)
    # How long the handler ran.
    seconds: float = 0.0
    # What is wrong with what the handler gave, where it broke its contract.
    breach: str | None = None

    def __bool__(self) -> bool:
        return bool(self.succeeded or self.ends)

    def list_ends(self) -> list[tuple[int, int, str]]:
        """How each job ended, with its partition."""
        if self.batch is None:
            return []
        rows = zip(self.batch.leases, self.batch.positions, self.verdicts, strict=True)
        return [
            (lease.partition_id, lease.range * RANGE + position, "succeeded" if verdict is None else verdict.end)
            for lease, position, verdict in rows
        ]

    def count_ends(self, lost: Sequence[tuple[int, int]]) -> Counter[str]:
        """How many jobs ended in which way, but for those that were not held any more."""
        counts: Counter[str] = Counter(lost=len(lost))
        if self.batch is not None:
            gone = set(lost)
            for lease, position, verdict in zip(self.batch.leases, self.batch.positions, self.verdicts, strict=True):
                if not gone or (lease.id, position) not in gone:
                    counts["succeeded" if verdict is None else verdict.end] += 1
        return counts


def run_batch(handler: Handler, batch: LeasedBatch, tasks: Mapping[str, TaskDefinition]) -> BatchResult:
    """Call the handler, and find out what it made of each row."""
    started_at = ticks()
    verdicts: list[Verdict | None]
    results: list[bytes | None] | None = None
    breach = None
    try:
        given = handler(batch.rows)
        # Going through it runs the handler's own code where it is a generator.
        outcomes = [*given] if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)) else given
    except BaseException as error:  # Whatever a handler raises, SystemExit too, is the end of its batch.
        rows = zip(batch.tasks, batch.leases, strict=True)
        verdicts = [_judge_error(tasks[task], lease.attempt, error) for task, lease in rows]
    else:
        breach = _find_breach(outcomes, len(batch))
        if breach is not None:
            verdicts = [Verdict("release")] * len(batch)
        elif outcomes is None:
            verdicts = [None] * len(batch)
        else:
            verdicts, results = _read_outcomes(outcomes, batch, tasks)
    result = _build_result(batch, verdicts, results, run_micros=(ticks() - started_at) // 1000)
    result.breach = breach
    return result


def _build_result(
    batch: LeasedBatch, verdicts: list[Verdict | None], results: list[bytes | None] | None, *, run_micros: int
) -> BatchResult:
    """The ends of a batch, as they are settled: what succeeded lease by lease, everything else row by row."""
    # The handler's time is shared out evenly: nobody can tell what each row took of it.
    share = run_micros // max(len(batch), 1)
    ends: list[End] = []
    groups: dict[int, Succeeded] = {}
    for index, (lease, position, verdict) in enumerate(zip(batch.leases, batch.positions, verdicts, strict=True)):
        if verdict is not None:
            ends.append(
                End(
                    lease=lease.id,
                    token=lease.token,
                    position=position,
                    range=lease.range,
                    end=verdict.end,
                    error=verdict.error,
                    due_in=verdict.due_in,
                    age=run_micros,
                    run=share,
                )
            )
            continue
        group = groups.get(lease.id)
        if group is None:
            group = Succeeded(lease.id, lease.token, lease.range, results=None if results is None else [])
            groups[lease.id] = group
        group.positions.append(position)
        if group.results is not None and results is not None:
            group.results.append(results[index])
    mixed = {end.lease for end in ends}
    for group in groups.values():
        group.is_whole = group.lease not in mixed
        group.ages = [run_micros] * len(group.positions)
        group.runs = [share] * len(group.positions)
    return BatchResult(batch, list(groups.values()), ends, verdicts, run_micros / 1e6)


def _find_breach(outcomes: object, rows: int) -> str | None:
    """How what a handler gave breaks its contract, if it does."""
    if outcomes is None:
        return None
    if not isinstance(outcomes, list):
        said = f"it gave {type(outcomes).__name__} for a batch of {rows} rows"
    elif len(outcomes) != rows:
        said = f"it gave {len(outcomes)} outcomes for a batch of {rows} rows"
    else:
        wrong = next((row for row, each in enumerate(outcomes) if type(each) not in (Ok, RetryAfter, Dead)), None)
        if wrong is None:
            return None
        said = f"it gave {type(outcomes[wrong]).__name__} as the outcome of row {wrong}"
    return (
        f"{said}; return None where all went well, or a list of one ps.Ok, ps.RetryAfter or ps.Dead for each row, in "
        "their order. The run has ended: the jobs of that batch are back in the queue, and no attempt was counted"
    )


def _read_outcomes(
    outcomes: Sequence[object], batch: LeasedBatch, tasks: Mapping[str, TaskDefinition]
) -> tuple[list[Verdict | None], list[bytes | None] | None]:
    """A verdict for each row that did not go well, and what the others gave, if any of them gave anything."""
    verdicts: list[Verdict | None] = [None] * len(outcomes)
    results: list[bytes | None] = [None] * len(outcomes)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Ok):
            if outcome.result is not None:
                try:
                    results[index] = encode_result(outcome.result)
                except InvalidInput as error:
                    verdicts[index] = Verdict("failed", describe(error))
        elif isinstance(outcome, Dead):
            verdicts[index] = Verdict("failed", storable_text(outcome.reason))
        elif isinstance(outcome, RetryAfter):
            error_text = storable_text(outcome.error)
            if batch.leases[index].attempt >= tasks[batch.tasks[index]].max_attempts:
                verdicts[index] = Verdict("failed", error_text)
            else:
                verdicts[index] = Verdict("retry", error_text, float(outcome.seconds))  # type: ignore[arg-type]
    return verdicts, results if any(result is not None for result in results) else None


def _judge_error(task: TaskDefinition, attempt: int, error: BaseException) -> Verdict:
    try:
        return judge(task, attempt, error, system.random_unit())
    except BaseException as problem:  # An exception class of the user's may break anything that looks at it.
        return Verdict("failed", f"{type(error).__name__} (and {type(problem).__name__} while looking at it)")
