"""G6: a total_rate holds in all partitions together when workers are killed or stopped, whichever of them grants,
through resizes, moves and changes of it, and when a shard is lost; and the judge finds a storage that does not keep it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought
from tests.fault.test_lost_shards import KINDS, Trouble
from tests.fault.test_order_and_limits import kill_at_work
from tests.fault.test_total_limits import wait_for_settles
from tests.judge.rates import RatePeriod, over_the_rate, read_leases, watch_leases

FAULT = "total_rate moved, changed or cut off under load"
QUEUES = ("paced", "paced-ordered")
RATE = 25.0


@dataclass(slots=True)
class Pace:
    """A stage whose leases are written down, and which rates it had when."""

    stage: Stage
    rate: float = RATE
    since: float = field(default_factory=time.time)
    periods: list[RatePeriod] = field(default_factory=list)

    def __post_init__(self) -> None:
        for url in self.stage.urls:
            watch_leases(url)

    def change(self, rate: float) -> None:
        """Let so many start a second; what was granted before has run out a second later."""
        self.periods.append(RatePeriod(self.since, time.time(), self.rate))
        for queue in QUEUES:
            self.stage.app.limit(queue, total_rate=f"{rate}/s")
        self.rate, self.since = rate, time.time() + 1.0

    def findings(self) -> list[str]:
        """What was found so far; from now on any number may start."""
        ended = time.time()
        self.periods.append(RatePeriod(self.since, ended, self.rate))
        self.periods.append(RatePeriod(0.0, ended, max(period.per_second for period in self.periods)))
        for queue in QUEUES:
            self.stage.app.limit(queue, total_rate=None)
        return [
            f"{queue}: {finding}"
            for queue in QUEUES
            for finding in over_the_rate(read_leases(self.stage.urls, queue), self.periods)
        ]

    def require(self) -> None:
        assert self.findings() == []
        self.stage.verdict().require("a settle")


def test_g6_a_total_rate_holds_when_workers_are_killed_or_stopped(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, partitions=3, total_rate=f"{RATE}/s", work_seconds=0.01, lease=1.0)
    pace = Pace(stage)
    for queue in QUEUES:
        stage.enqueue_steps(queue, 200, keys=50)
    crew = [stage.worker() for _ in range(3)]
    for number in range(times(3, 15)):
        if number % 2:
            victim = crew[number % 3]
            eventually(lambda: stage.is_at_work(victim), "the worker is at work")  # noqa: B023
            stage.stop(victim)
            eventually(lambda: stage.has_lost_its_partitions(victim.pid), "others have taken over")  # noqa: B023
            wait_for_settles(stage)
            victim.send_signal(signal.SIGCONT)
        else:
            kill_at_work(stage, crew, number % 3)
        brought(FAULT)
        brought("worker killed" if number % 2 == 0 else "worker stopped past its lease")
        refill(stage)
    pace.require()


def test_g6_a_total_rate_holds_through_changes_of_it_and_of_partitions(
    make_stage: MakeStage, database_url: str
) -> None:
    stage = make_stage(database_url, partitions=3, total_rate=f"{RATE}/s", work_seconds=0.01)
    pace = Pace(stage)
    crew = [stage.worker() for _ in range(2)]
    for number in range(times(2, 10)):
        refill(stage)
        wait_for_settles(stage)
        pace.change(stage.random.choice([10, 40]))
        for queue in QUEUES:
            stage.app.resize(queue, partitions=stage.random.choice([1, 2, 5]))
        kill_at_work(stage, crew, number % 2)
        brought(FAULT, 2)
    pace.require()


@pytest.fixture
def paced_trouble(shard_urls: list[str], make_stage: MakeStage) -> Iterator[Trouble]:
    """Two shards, each behind a proxy, and partitions of both queues on each."""
    proxies = [Proxy(url) for url in shard_urls]
    stage = make_stage(
        shard_urls[0],
        urls=shard_urls,
        shards=[proxy.url for proxy in proxies],
        partitions=4,
        total_rate=f"{RATE}/s",
        request_timeout=5.0,
        work_seconds=0.01,
    )
    yield Trouble(stage, proxies)
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize("kind", KINDS)
def test_g6_a_total_rate_holds_when_one_of_two_shards_is_lost(paced_trouble: Trouble, kind: str) -> None:
    stage = paced_trouble.stage
    crew = [stage.worker() for _ in range(2)]
    pace = Pace(stage)
    refill(stage)
    for shard in (1, 2):
        eventually(lambda: stage.settles_on(shard), "jobs of both shards are settled")  # noqa: B023
    for number in range(times(2, 4)):
        lost = 1 + number % 2
        with paced_trouble.befalls(lost, kind):
            for _ in range(3):
                stage.breathe()
            kill_at_work(stage, crew, number % 2)
        before = stage.settles_on(lost)
        refill(stage)
        eventually(lambda: stage.settles_on(lost) > before, "the shard is back, and its jobs go on")  # noqa: B023
        brought(FAULT)
    pace.require()


def test_g6_a_total_rate_holds_while_partitions_move_between_shards(
    shard_urls: list[str], make_stage: MakeStage
) -> None:
    stage = make_stage(
        shard_urls[0], urls=shard_urls, shards=shard_urls, partitions=3, total_rate=f"{RATE}/s", work_seconds=0.01
    )
    crew = [stage.worker() for _ in range(2)]
    pace = Pace(stage)
    for number in range(times(2, 8)):
        refill(stage)
        wait_for_settles(stage)
        for queue in QUEUES:
            stage.app.move_partition(queue, number % 3, 1 + stage.random.randrange(2))
        stage.breathe()
        kill_at_work(stage, crew, number % 2)
        brought(FAULT, 2)
    pace.require()


@pytest.mark.parametrize(
    ("function", "right", "wrong", "queues"),
    [
        # The gate does not look at tokens, or does not spend them; nor does an owner; the bucket does not.
        ("enter_gate", "penstock.total_tokens(p.id) end)", "1000 end)", {"paced"}),
        ("claim", "v_gate.starts + v_got", "v_gate.starts", {"paced"}),
        ("spend_total_tokens", "+ p_count", "+ 0", {"paced-ordered"}),
        ("grant_tokens", "ceil(v_given * 1e6 / q.total_rate)", "ceil(0 / q.total_rate)", set(QUEUES)),
    ],
)
def test_a_storage_that_does_not_keep_a_total_rate_is_found_out(
    make_stage: MakeStage, database_url: str, function: str, right: str, wrong: str, queues: set[str]
) -> None:
    stage = make_stage(database_url, partitions=3, total_rate="5/s", concurrency=16)
    pace = Pace(stage, rate=5.0)
    refill(stage, 60)
    with psycopg.connect(database_url, autocommit=True) as connection:
        ((text,),) = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc"
            " where pronamespace = 'penstock'::regnamespace and proname = %s",
            [function],
        ).fetchall()
        assert text.count(right) == 1
        connection.execute(text.replace(right, wrong).encode())
    stage.worker()
    always = [RatePeriod(0.0, inf, 5.0)]
    for queue in queues:
        eventually(lambda: over_the_rate(read_leases([database_url], queue), always), "too many have started")  # noqa: B023
    assert {finding.partition(":")[0] for finding in pace.findings()} == queues
    stage.verdict().require("a settle")


def refill(stage: Stage, count: int = 100) -> None:
    """Have more wait than may start for a while."""
    for queue in QUEUES:
        stage.enqueue_steps(queue, count, keys=count, failing=0)
