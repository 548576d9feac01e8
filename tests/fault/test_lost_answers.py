"""G1, G2, G3: a COMMIT is done and its answer lost. Nobody may conclude that it was not, nor do it again."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from tests.fault.crew import build
from tests.fault.proxy import Cut, Proxy
from tests.fault.stage import Stage, eventually, times
from tests.fault.tally import brought
from tests.system.meeting import Meeting

from penstock import App, RequestTimeout

CUTS: list[Cut] = ["answered", "ended", "answered", "ended", "racing", "unsent"]


# A claim's COMMIT waits for whoever holds the lock.
SLOW_COMMIT = """
create function public.wait_at_commit() returns trigger language plpgsql as
$$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$;
create constraint trigger slow after insert on penstock.lease deferrable initially deferred
for each row execute function public.wait_at_commit();
"""

HAS_LOOKED = """
select from pg_stat_activity
 where datname = current_database() and application_name = 'penstock conductor'
   and backend_start > %s
   and (query like '%%from pg_stat_activity where pid%%' or query like '%%penstock.lease where worker_id%%'
        or query like '%%penstock.claim(%%')
"""


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


@pytest.fixture
def distant(stage: Stage, proxy: Proxy) -> Iterator[App]:
    """The producers' app, through the proxy."""
    app = build(msgspec.structs.replace(stage.orders, url=proxy.url))
    yield app
    app.close()


@pytest.mark.parametrize("count", [1, 5, 150], ids=["single", "few", "copied"])
def test_g1_a_call_whose_answer_is_lost_is_written_once(stage: Stage, proxy: Proxy, distant: App, count: int) -> None:
    def is_commit(chunk: bytes, said: bytes) -> bool:
        # A large call ends with COMMIT; a small one is a single statement, known by the arguments it carries.
        return is_commit_in(chunk, said) if count >= 100 else b'"label"' in chunk

    stage.enqueue("plain", count, distant)
    stage.enqueue("plain", count, distant)
    stage.enqueue("plain", count, distant)
    for cut in CUTS * times(1, 4):
        cuts = proxy.cut_count
        proxy.cut_next(cut, is_commit)
        stage.enqueue("plain", count, distant)
        assert proxy.cut_count == cuts + 1
        brought("answer lost after COMMIT")
    verdict = stage.verdict()
    verdict.require("a settle")
    assert not verdict.sometimes["an enqueue of unknown outcome"]


@pytest.mark.parametrize("cut", dict.fromkeys(CUTS))
def test_g1_g5_calls_that_were_written_together_all_find_out_when_their_answer_is_lost(
    stage: Stage, proxy: Proxy, distant: App, cut: Cut
) -> None:
    """Threads and tasks, of a plain queue and of one in order: one transaction, and nobody hears of it."""
    spread = distant.queue("spread", partitions=4, order="key").task(name="step", key="customer", max_attempts=2)(_step)
    plain = distant.queue("keyed").task(name="plain", max_attempts=2)(_labelled)
    numbers = itertools.count()
    told = [plain.enqueue(label="first"), spread.enqueue(customer="c0", label="second")]

    def call_of_task() -> int:
        return asyncio.run(plain.aenqueue(label=str(next(numbers))))

    many = 3 + times(2, 8)
    for _ in range(4 * many):
        before = proxy.cut_count
        with Meeting(distant) as meeting:
            calls = [meeting.call(plain.enqueue, label=str(next(numbers))) for _ in range(3)]
            calls += [meeting.call(spread.enqueue, customer=f"c{n}", label=str(next(numbers))) for n in range(5)]
            calls += [meeting.call(call_of_task) for _ in range(2)]
            if not proxy.has_cuts:
                proxy.cut_next(cut, is_merged_in)
        told += [call.result() for call in calls]
        if proxy.cut_count > before:
            brought("answer lost after COMMIT")
        if proxy.cut_count == many:
            break
        # Otherwise the session that these were given had been cut, by an answer that won its race: nothing was sent on
        # it, and each was written by itself.
    assert proxy.cut_count == many
    assert Counter(stage.snapshot().labels.values()).most_common(1)[0][1] == 1
    assert sorted(stage.snapshot().labels) == sorted(told)


def test_g12_whoever_was_written_together_looks_until_its_own_deadline(
    stage: Stage, proxy: Proxy, distant: App
) -> None:
    plain = distant.queue("keyed").task(name="plain", max_attempts=2)(_labelled)
    plain.enqueue(label="first")
    proxy.goes_down_when_answered = True
    with Meeting(distant) as meeting:
        patient = [meeting.call(plain.enqueue, label=f"patient-{n}") for n in range(2)]
        hasty = meeting.call(plain.options(request_timeout=2.0).enqueue, label="hasty")
        proxy.cut_next("answered", is_merged_in)
    error = hasty.exception()
    assert isinstance(error, RequestTimeout)
    assert error.outcome == "unknown"
    assert not any(call.done() for call in patient)
    proxy.goes_down_when_answered = False
    proxy.come_up()
    stored = {label: job for job, label in stage.snapshot().labels.items()}
    assert [call.result() for call in patient] == [stored["patient-0"], stored["patient-1"]]
    assert "hasty" in stored


@pytest.mark.parametrize("cut", CUTS[:2])
def test_g1_g5_a_call_over_partitions_or_with_children_is_written_once_when_its_session_ends_in_commit(
    stage: Stage, proxy: Proxy, distant: App, cut: Cut
) -> None:
    """All that is not one statement: over several partitions, a job with `after=`, jobs of many keys in order."""
    spread = distant.queue("spread", partitions=4, order="key").task(name="step", key="customer", max_attempts=2)(_step)
    parent = spread.enqueue(customer="c0", label="parent")
    numbers = itertools.count()

    def call(count: int, **options: Any) -> list[int]:
        return distant.enqueue_many(
            [spread.options(**options).job(customer=f"c{n % 7}", label=str(next(numbers))) for n in range(count)]
        )

    told = [parent]
    for _ in range(3):
        told += call(7) + call(1, after=[parent])
    for _ in range(times(2, 8)):
        for count, options in ((7, {}), (1, {"after": [parent]}), (140, {})):
            cuts = proxy.cut_count
            proxy.cut_next(cut, is_commit_in)
            told += call(count, **options)
            assert proxy.cut_count == cuts + 1
            brought("answer lost after COMMIT")
    assert Counter(stage.snapshot().labels.values()).most_common(1)[0][1] == 1
    assert sorted(stage.snapshot().labels) == sorted(told)


def test_g7_idempotency_keys_hold_when_the_answer_is_lost(stage: Stage, proxy: Proxy, distant: App) -> None:
    ids: dict[str, int] = {}
    plain = distant.queue("keyed").task(name="plain", max_attempts=2)(_labelled)
    for number, cut in enumerate(CUTS * times(1, 4)):
        proxy.cut_next(cut, is_commit_in)
        ids[str(number)] = plain.options(idempotency_key=f"k-{number}").enqueue(label=str(number))
        brought("answer lost after COMMIT")
    again = distant.enqueue_many([plain.options(idempotency_key=f"k-{n}").job(label=n) for n in ids])
    assert again == list(ids.values())
    stored = stage.snapshot().labels
    assert stored == {job: label for label, job in ids.items()}


def test_g2_g3_a_worker_whose_turn_was_committed_unheard_forgets_no_lease(stage: Stage, proxy: Proxy) -> None:
    stage.worker(url=proxy.url, concurrency=4, work_seconds=0.01)
    for cut in CUTS * times(1, 4):
        before, cuts = stage.settles(), proxy.cut_count
        stage.enqueue("plain", 10)
        stage.enqueue("plain", 1)
        eventually(lambda: stage.settles() > before, "jobs are settled")  # noqa: B023
        proxy.cut_next(cut, is_turn_in)
        stage.enqueue("plain", 10)
        eventually(lambda: proxy.cut_count > cuts, "a turn was cut")  # noqa: B023
        eventually(lambda: stage.is_drained(), "everything was done all the same")
        brought("answer lost after COMMIT")
    stage.verdict().require("a settle")


def test_g2_a_claim_that_commits_after_its_worker_was_cut_off_is_not_forgotten(stage: Stage, proxy: Proxy) -> None:
    stage.worker(url=proxy.url)
    stage.enqueue("plain", 3)
    eventually(lambda: stage.settles() == 3, "the worker is at work")
    with psycopg.connect(stage.url, autocommit=True) as holder:
        holder.execute(SLOW_COMMIT)
        holder.execute("select pg_advisory_lock(7)")
        since = holder.execute("select clock_timestamp()").fetchone()
        stage.enqueue("plain", 3)
        eventually(stage.has_waiting_session, "the claim waits in its COMMIT")
        proxy.cut_now(lambda said: b"penstock.claim(" in said)
        # The worker is back and has looked, at what it holds or whether its claim is still under way.
        eventually(lambda: holder.execute(HAS_LOOKED, since).fetchone() is not None, "the worker is back")
    stage.verdict().require("a settle")


def test_a_worker_leaves_when_it_is_told_twice_though_the_database_is_away(stage: Stage, proxy: Proxy) -> None:
    worker = stage.worker(url=proxy.url)
    stage.enqueue("plain", 3)
    eventually(stage.settles, "the worker is at work")
    proxy.go_down()

    def has_left() -> bool:
        # Told again and again: signals that arrive together are one.
        worker.terminate()
        return worker.poll() is not None

    eventually(has_left, "the worker has left")
    assert worker.returncode in (0, -signal.SIGTERM)  # The latter where it was told once more while it left.
    proxy.come_up()


def is_commit_in(chunk: bytes, said: bytes) -> bool:
    """Whether a client commits here, in words or by a statement it has prepared."""
    prepared = re.findall(rb"(_pg3_\d+\x00)commit\x00", said, re.IGNORECASE)
    return b"commit\x00" in chunk.lower() or any(name in chunk for name in prepared)


def is_merged_in(chunk: bytes, said: bytes) -> bool:
    """Whether calls that met are written here: one statement, which commits itself."""
    # Of the portal without a name, by the statement that the session keeps: not the message that prepares that.
    return b"\x00enqueue_merged\x00" in chunk


def is_turn_in(chunk: bytes, said: bytes) -> bool:
    """Whether a worker claims here, alone or after settling; a turn is committed without a COMMIT of its own."""
    prepared = re.findall(rb"(_pg3_\d+\x00)[^\x00]*penstock\.claim\(", said)
    return b"penstock.claim(" in chunk or any(name in chunk for name in prepared)


def _labelled(label: str) -> None:
    return None


def _step(customer: str, label: str) -> None:
    return None
