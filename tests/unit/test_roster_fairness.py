"""Shares of tenants."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.model import QueueRules
from penstock.policy import Roster, WaitingJob
from penstock.policy.ready_keys import FairReadyKeys


def job(number: int, tenant: str, *, key: bytes | None = None, ready_at: float = 0.0) -> WaitingJob:
    return WaitingJob(number, b"%d" % number if key is None else key, 5, number, ready_at, tenant, 1, True)


def roster_of(rules: QueueRules, **counts: int) -> Roster:
    roster = Roster(rules, 0, 0.0)
    number = 0
    for tenant, count in counts.items():
        roster.add(job(number + index, tenant) for index in range(count))
        number += count
    return roster


def run(roster: Roster, tenants: dict[int, str], jobs: int) -> Counter[str]:
    """Start and end jobs one by one; how many of each tenant."""
    started: Counter[str] = Counter()
    for _ in range(jobs):
        for number in roster.take(1, 0.0):
            started[tenants[number]] += 1
            roster.note_end(number, "succeeded", 0.0)
    return started


FAIR = QueueRules(per_key=1, fair_by="tenant")


def test_a_small_tenant_does_not_wait_behind_a_deep_one() -> None:
    roster = roster_of(FAIR, deep=10_000, small=10)
    tenants = dict.fromkeys(range(10_000), "deep") | dict.fromkeys(range(10_000, 10_010), "small")
    assert run(roster, tenants, 20) == {"deep": 10, "small": 10}
    assert run(roster, tenants, 20) == {"deep": 20}, "what the one does not use the other does"


def test_shares_are_by_weight() -> None:
    rules = QueueRules(per_key=1, fair_by="tenant", weights={"gold": 3.0, "iron": 0.5})
    roster = roster_of(rules, gold=1_000, plain=1_000, iron=1_000)
    tenants = {number: ("gold", "plain", "iron")[number // 1_000] for number in range(3_000)}
    started = run(roster, tenants, 900)
    assert started == {"gold": pytest.approx(600, abs=3), "plain": pytest.approx(200, abs=3), "iron": 100}


def test_a_tenant_that_was_idle_has_saved_nothing_up() -> None:
    roster = roster_of(FAIR, busy=1_000)
    tenants = dict.fromkeys(range(1_000), "busy")
    run(roster, tenants, 500)
    roster.add(job(number, "idle") for number in range(1_000, 2_000))
    tenants |= dict.fromkeys(range(1_000, 2_000), "idle")
    assert run(roster, tenants, 100) == {"busy": 50, "idle": 50}


def test_a_tenant_that_comes_with_one_job_at_a_time_gets_no_more_than_its_share() -> None:
    rules = QueueRules(per_key=1, fair_by="tenant", weights={"rare": 0.1})
    roster = roster_of(rules, busy=1_000)
    tenants = dict.fromkeys(range(1_000), "busy")
    started: Counter[str] = Counter()
    for number in range(1_000, 1_110):
        if not roster.waiting - (1_000 - started["busy"]):
            roster.add([job(number, "rare")])
            tenants[number] = "rare"
        started += run(roster, tenants, 1)
    assert started == {"busy": 100, "rare": 10}


def test_within_a_tenant_the_least_rank_is_first() -> None:
    roster = Roster(FAIR, 0, 0.0)
    roster.add([job(1, "a", ready_at=9.0), job(2, "a", ready_at=3.0), job(3, "b", ready_at=7.0)])
    assert sorted(roster.take(2, 0.0)) == [2, 3]
    assert roster.take(2, 0.0) == [1]


def test_the_order_of_a_key_holds_whatever_the_shares() -> None:
    roster = Roster(FAIR, 0, 0.0)
    roster.add([job(1, "a", key=b"k"), job(2, "b", key=b"k"), job(3, "a", key=b"k")])
    for number in (1, 2, 3):
        assert roster.take(9, 0.0) == [number]
        roster.note_end(number, "succeeded", 0.0)


def test_a_tenant_that_may_not_start_costs_the_others_nothing() -> None:
    roster = Roster(QueueRules(per_key=1, fair_by="tenant", per_key_rate="1/s"), 0, 0.0)
    roster.add(job(number, "slow", key=b"k") for number in range(5))
    roster.add(job(number, "quick") for number in range(10, 20))
    assert len(roster.take(9, 0.0)) == 0
    assert len(roster.take(9, 1.0)) == 9
    roster.note_end(0, "succeeded", 1.0)
    assert roster.take(9, 1.0) == [18, 19]


def test_weights_can_change_while_jobs_wait() -> None:
    roster = roster_of(FAIR, a=1_000, b=1_000)
    tenants = {number: "ab"[number // 1_000] for number in range(2_000)}
    assert run(roster, tenants, 100) == {"a": 50, "b": 50}
    roster.rules = QueueRules(per_key=1, fair_by="tenant", weights={"a": 9.0})
    assert run(roster, tenants, 100) == {"a": pytest.approx(90, abs=2), "b": pytest.approx(10, abs=2)}


def test_tenants_without_jobs_are_forgotten_and_their_numbers_used_again() -> None:
    roster = Roster(FAIR, 0, 0.0)
    for number in range(5_000):
        roster.add([job(number, f"tenant-{number}"), job(number, f"tenant-{number}")])
        assert roster.take(2, 0.0) == [number]
        roster.note_end(number, "succeeded", 0.0)
    assert isinstance(roster._ready_keys, FairReadyKeys)
    assert len(roster._ready_keys._tenants) < 300
    assert len(roster._ready_keys._numbered) < 300


def test_tenants_that_keep_coming_do_not_starve_those_that_wait() -> None:
    roster = roster_of(FAIR, old=10)
    tenants = dict.fromkeys(range(10), "old")
    started: Counter[str] = Counter()
    for number in range(100, 200):
        roster.add([job(number, f"new-{number}")])
        tenants[number] = "new"
        started += run(roster, tenants, 1)
    assert started["old"] == 10


@pytest.mark.parametrize("limit", [None, 3])
def test_jobs_without_a_key_are_shared_out_too(limit: int | None) -> None:
    """Those of a tenant do not wait in one line behind those of another."""
    roster = Roster(QueueRules(per_key=1, fair_by="tenant", limit=limit, weights={"keyed": 2.0}), 0, 0.0)
    roster.add(WaitingJob(number, None, 5, number, 0.0, "deep", 1, True) for number in range(1_000))
    roster.add(WaitingJob(number, None, 5, number, 9.0, "small", 1, True) for number in range(1_000, 1_010))
    roster.add(job(number, "keyed", ready_at=9.0) for number in range(2_000, 2_020))
    tenants = dict.fromkeys(range(1_000), "deep") | dict.fromkeys(range(1_000, 1_010), "small")
    tenants |= dict.fromkeys(range(2_000, 2_020), "keyed")
    assert run(roster, tenants, 40) == {"deep": 10, "small": 10, "keyed": 20}
    assert run(roster, tenants, 1_000) == {"deep": 990}
    assert not roster._keys


def test_tenants_whose_jobs_have_neither_key_nor_handler_cost_no_key() -> None:
    roster = Roster(FAIR, 0, 0.0)
    roster.add(WaitingJob(number, None, 5, number, 0.0, f"tenant-{number}", 1, False) for number in range(100))
    assert (roster.waiting, roster.startable, len(roster._keys)) == (100, 0, 0)
    assert roster.take(9, 0.0) == []
