"""G6: a total_limit holds in all partitions together when workers are killed or stopped, whichever of them allots,
through resizes and changes of it, and when a shard is lost; and the judge finds a storage that does not keep it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought
from tests.fault.test_lost_shards import KINDS, Trouble
from tests.fault.test_order_and_limits import kill_at_work

FAULT = "total_limit moved, changed or cut off under load"
QUEUES = ("total", "total-ordered")
TOTAL = 4


@pytest.fixture
def total_trouble(shard_urls: list[str], make_stage: MakeStage) -> Iterator[Trouble]:
    """Two shards, each behind a proxy, and partitions of both queues on each."""
    proxies = [Proxy(url) for url in shard_urls]
    stage = make_stage(
        shard_urls[0],
        urls=shard_urls,
        shards=[proxy.url for proxy in proxies],
        partitions=4,
        total=TOTAL,
        request_timeout=5.0,
        work_seconds=0.01,
    )
    yield Trouble(stage, proxies)
    for proxy in proxies:
        proxy.close()


def test_g6_a_total_limit_holds_when_workers_are_killed_or_stopped(make_stage: MakeStage, database_url: str) -> None:
    stage = make_stage(database_url, partitions=3, total=TOTAL, work_seconds=0.01, lease=1.0)
    crew = [stage.worker() for _ in range(3)]
    with stage.producing_steps("total"), stage.producing_steps("total-ordered"):
        for number in range(times(4, 15)):
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
    stage.verdict().require("a settle", "a limit reached")


def test_g6_a_total_limit_holds_through_changes_of_it_and_of_partitions(
    make_stage: MakeStage, database_url: str
) -> None:
    stage = make_stage(database_url, partitions=3, total=TOTAL, work_seconds=0.01)
    crew = [stage.worker() for _ in range(2)]
    with stage.producing_steps("total"), stage.producing_steps("total-ordered"):
        for number in range(times(3, 10)):
            wait_for_settles(stage)
            for queue in QUEUES:
                stage.change_total(queue, stage.random.choice([1, 2, 7]))
                stage.app.resize(queue, partitions=stage.random.choice([1, 2, 5]))
            kill_at_work(stage, crew, number % 2)
            brought(FAULT, 2)
    stage.verdict().require("a settle")


@pytest.mark.parametrize("kind", KINDS)
def test_g6_a_total_limit_holds_when_one_of_two_shards_is_lost(total_trouble: Trouble, kind: str) -> None:
    stage = total_trouble.stage
    for queue in QUEUES:
        stage.enqueue_steps(queue, 200, keys=200, failing=0)
    crew = [stage.worker() for _ in range(2)]
    with stage.producing_steps("total", keys=50), stage.producing_steps("total-ordered", keys=50):
        for shard in (1, 2):
            eventually(lambda: stage.settles_on(shard), "jobs of both shards are settled")  # noqa: B023
        for number in range(times(2, 4)):
            lost = 1 + number % 2
            with total_trouble.befalls(lost, kind):
                for _ in range(3):
                    stage.breathe()
                kill_at_work(stage, crew, number % 2)
            before = stage.settles_on(lost)
            eventually(lambda: stage.settles_on(lost) > before, "the shard is back, and its jobs go on")  # noqa: B023
            brought(FAULT)
    stage.verdict().require("a settle", "a limit reached")


def test_g6_a_total_limit_holds_while_partitions_move_between_shards(
    shard_urls: list[str], make_stage: MakeStage
) -> None:
    stage = make_stage(shard_urls[0], urls=shard_urls, shards=shard_urls, partitions=3, total=TOTAL, work_seconds=0.01)
    crew = [stage.worker() for _ in range(2)]
    with stage.producing_steps("total", keys=50), stage.producing_steps("total-ordered", keys=50):
        for number in range(times(3, 8)):
            wait_for_settles(stage)
            for queue in QUEUES:
                stage.app.move_partition(queue, number % 3, 1 + stage.random.randrange(2))
            stage.breathe()
            kill_at_work(stage, crew, number % 2)
            brought(FAULT, 2)
    stage.verdict().require("a settle", "a limit reached")


@pytest.mark.parametrize(
    ("function", "right", "wrong"),
    [
        # The gate does not look at permits; the owner's lease does not; the ledger gives out what others still have.
        ("enter_gate", "then p.permits end)", "then 1000 end)"),
        ("owned_partitions", "and g.n > p.permits - ", "and g.n > 1000 - "),
        ("allot_permits", "q.total_limit - sum(greatest(l.held, l.permits))", "q.total_limit"),
    ],
)
def test_a_storage_that_does_not_keep_a_total_limit_is_found_out(
    make_stage: MakeStage, database_url: str, function: str, right: str, wrong: str
) -> None:
    # With fewer permits than partitions with work they move all the time, while jobs run.
    stage = make_stage(database_url, partitions=3, total=1, work_seconds=0.05, concurrency=16)
    for queue in QUEUES:
        stage.enqueue_steps(queue, 30, keys=30)
    with psycopg.connect(database_url, autocommit=True) as connection:
        ((text,),) = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc"
            " where pronamespace = 'penstock'::regnamespace and proname = %s",
            [function],
        ).fetchall()
        assert text.count(right) == 1
        connection.execute(text.replace(right, wrong).encode())
        if function == "owned_partitions":
            # An owner goes by the permits that it has seen.
            connection.execute("update penstock.partition set permits = 100")
            connection.execute(
                "create function penstock.keep() returns trigger language plpgsql as"
                " $$ begin new.permits := 100; return new; end $$;"
                "create trigger keep before update on penstock.partition for each row execute function penstock.keep()"
            )
    stage.worker()
    for queue in QUEUES:
        stage.enqueue_steps(queue, 30, keys=30)
    assert set(stage.verdict().findings) == {"over the limit"}


def wait_for_settles(stage: Stage) -> None:
    before = stage.settles()
    eventually(lambda: stage.settles() > before + 20, "jobs are settled")
