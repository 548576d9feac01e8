"""The figures of a report, as plain values: what Spark counted, and what the page shows.

Times are in UTC, lengths in seconds. A *moment* is one step of the report's time axis; all of them are equally long,
and those in which nothing ended are there too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.model.short_repr import ShortRepr
from penstock.spark.reporting.key_time import KeyTime

__all__ = [
    "LAST_ATTEMPT",
    "Age",
    "Attempts",
    "Cause",
    "Figures",
    "HotKey",
    "KeySkew",
    "LoadFigures",
    "Moment",
    "PartitionFigures",
    "Percentiles",
    "TaskFigures",
    "Waiting",
    "WaitingQueue",
    "WorkerFigures",
]


# Jobs that needed so many attempts are counted with those that needed more.
LAST_ATTEMPT = 6


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How long the faster half, nine tenths and ninety-nine hundredths took at most; None where nothing was timed."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None

    @property
    def is_known(self) -> bool:
        return self.p50 is not None


@dataclass(frozen=True, slots=True)
class Moment:
    """What ended in one step of the time axis. `causes` counts failures by cause, in the order of `Figures.causes`."""

    at: datetime
    outcomes: dict[str, int] = field(default_factory=dict)
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    causes: dict[str, int] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """A task of a queue. `wait` counts first attempts only: later ones waited because they were told to."""

    queue: str
    task: str
    jobs: int
    outcomes: dict[str, int]
    retried: int
    wait: Percentiles
    run: Percentiles


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many jobs ended with their n-th attempt; 0: they never started, LAST_ATTEMPT: that one or a later."""

    attempt: int
    outcomes: dict[str, int]

    @property
    def jobs(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Cause:
    """An error's first line with its numbers left out, and how often it was the reason."""

    text: str
    count: int
    tasks: list[str]
    last_at: datetime


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key and its jobs; what it needs for them alone, where its queue runs them one after the other."""

    key: str
    jobs: int
    share: float
    time: KeyTime | None = None


@dataclass(frozen=True, slots=True)
class KeySkew:
    """How unevenly a queue's jobs lie on its keys.

    `gini` is 0 where every key has as many jobs as any other and nears 1 where one has them all. `lorenz` holds points
    of the curve: the share of jobs that the coldest share of keys has. `advised_run` is told where its
    hottest keys would be done much sooner with it.
    """

    queue: str
    jobs: int
    keys: int
    gini: float
    hottest: list[HotKey]
    lorenz: list[tuple[float, float]]
    advised_run: int | None = None

    @property
    def hottest_share(self) -> float:
        return self.hottest[0].share if self.hottest else 0.0

    @property
    def slowest(self) -> HotKey | None:
        """Of the hottest, the key that needs the longest."""
        return max(
            (hot for hot in self.hottest if hot.time), key=lambda hot: hot.time.seconds if hot.time else 0, default=None
        )


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """A partition's part of its queue's work."""

    queue: str
    partition: str
    jobs: int
    run_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What a worker ended, moment by moment, and how long its handlers ran together."""

    worker: str
    jobs: int
    failed: int
    run_seconds: float
    first_at: datetime
    last_at: datetime
    moments: list[int]

    @property
    def running_on_average(self) -> float | None:
        """How many of its jobs ran at once; None where it was seen too shortly to say."""
        seen = (self.last_at - self.first_at).total_seconds()
        return self.run_seconds / seen if seen > 0 else None


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """A load's jobs that ended, from the first that was enqueued to the last that ended."""

    load: str
    jobs: int
    outcomes: dict[str, int]
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Age:
    """Jobs that wait, enqueued less than `below_seconds` ago (None: longer), by state."""

    below_seconds: float | None
    states: dict[str, int]

    @property
    def jobs(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """A queue's jobs that have not ended."""

    queue: str
    states: dict[str, int]
    oldest_seconds: float

    @property
    def jobs(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Waiting:
    """What had not ended when the report was made."""

    states: dict[str, int] = field(default_factory=dict)
    oldest_seconds: float | None = None
    ages: list[Age] = field(default_factory=list)
    queues: list[WaitingQueue] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Figures(ShortRepr):
    """Everything a report says."""

    made_at: datetime
    since: datetime | None = None
    queue: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    moment_seconds: float = 1.0
    outcomes: dict[str, int] = field(default_factory=dict)
    retried: int = 0
    extra_attempts: int = 0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    moments: list[Moment] = field(default_factory=list)
    tasks: list[TaskFigures] = field(default_factory=list)
    attempts: list[Attempts] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    attempt_causes: list[Cause] = field(default_factory=list)
    keys: list[KeySkew] = field(default_factory=list)
    partitions: list[PartitionFigures] = field(default_factory=list)
    workers: list[WorkerFigures] = field(default_factory=list)
    worker_count: int = 0
    loads: list[LoadFigures] = field(default_factory=list)
    waiting: Waiting = Waiting()

    @property
    def ended(self) -> int:
        return sum(self.outcomes.values())

    @property
    def succeeded(self) -> int:
        return self.outcomes.get("succeeded", 0)

    @property
    def failed(self) -> int:
        return self.outcomes.get("failed", 0)

    @property
    def busiest(self) -> Moment | None:
        """The moment in which most jobs ended."""
        return max(self.moments, key=lambda moment: moment.jobs, default=None)

    @property
    def seconds(self) -> float:
        """From the first end to the last."""
        return (self.end - self.start).total_seconds() if self.start and self.end else 0.0

    @property
    def jobs_a_second(self) -> float | None:
        """The mean from the first end to the last; None where that is no time at all."""
        return self.ended / self.seconds if self.seconds > 0 else None

    @property
    def moment(self) -> timedelta:
        return timedelta(seconds=self.moment_seconds)
