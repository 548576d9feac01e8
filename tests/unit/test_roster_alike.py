"""Jobs that are alike but for their ids, added at once, are as if they had been added one by one."""

from __future__ import annotations

from random import Random

import pytest

from penstock.model import QueueRules
from penstock.policy import Roster
from penstock.policy.job_sequence import MOST_FIELDS, JobSequence
from penstock.policy.ready_keys import FairReadyKeys

RULES = [
    QueueRules(per_key=1),
    QueueRules(per_key=3, limit=5),
    QueueRules(per_key=1, on_retry="pass"),
    QueueRules(per_key=2, fair_by="tenant"),
    QueueRules(per_key=None, rate="9/s"),
]
ENDS = ["succeeded", "succeeded", "succeeded", "retry", "release", "failed"]


def jobs_by_tenant(roster: Roster) -> dict[str, int]:
    ready_keys = roster._ready_keys
    return (
        {name: tenant.jobs for name, tenant in ready_keys._tenants.items()}
        if isinstance(ready_keys, FairReadyKeys)
        else {}
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_run_is_taken_over_as_its_jobs_one_by_one_would_be(seed: int) -> None:
    random = Random(seed)
    rules = random.choice(RULES)
    at_once, singly = Roster(rules, 0, 0.0), Roster(rules, 0, 0.0)
    facts: dict[int, tuple[bytes | None, int, int, float, str, int, bool]] = {}
    out: list[int] = []
    pos = 0
    for step in range(200):
        act = random.random()
        if act < 0.2:
            pos += 1
            begin = pos * 1_024 + random.randrange(100)
            jobs = range(begin, begin + random.choice([0, 1, 5, 30]))
            key = random.choice([b"a", b"a", b"b", None])
            # Most come in order; some were late, and come before what was read.
            place = random.choice([pos, pos, pos, random.randrange(pos + 1)])
            tenant = random.choice(["x", "y"])
            fact = (key, random.choice([5, 5, 4]), place, float(pos), tenant, 1 + pos // 25, random.random() < 0.95)
            facts.update(dict.fromkeys(jobs, fact))
        elif act < 0.3 and facts:
            # Read again: what waits, what is out, what is held, whatever it is.
            begin = random.choice(sorted(facts))
            jobs, fact = range(begin, begin + 1), facts[begin]
            out = [job for job in out if job not in jobs]
        else:
            wanted = random.choice([1, 3, 20])
            taken = at_once.take(wanted, float(step))
            assert taken == singly.take(wanted, float(step))
            out += taken
            for job in random.sample(out, len(out) // 2):
                out.remove(job)
                end = random.choice(ENDS)
                at_once.note_end(job, end, float(step))
                singly.note_end(job, end, float(step))
            continue
        at_once.add_alike(jobs, *fact)
        singly.add((job, *fact) for job in jobs)
        assert (at_once.waiting, at_once.startable) == (singly.waiting, singly.startable)
        assert at_once.is_idle(float(step)) == singly.is_idle(float(step))
        assert at_once._keys.keys() == singly._keys.keys()
        assert jobs_by_tenant(at_once) == jobs_by_tenant(singly)


def test_runs_of_any_length_are_kept_in_arrays_that_stay_short() -> None:
    sequence = JobSequence(1, 5)
    begin = 0
    for length in (1, 5_000, 1_024, 1_024, 2_047, 2_048, 2_049, 3):
        sequence.append_alike(0, range(begin, begin + length), 0, 1)
        begin += length
    assert all(0 < len(chunk) <= MOST_FIELDS for chunk in (sequence.first, *(sequence.later or ())))
    assert [sequence.pop() for _ in range(begin)] == list(range(begin))
    assert sequence.is_empty


def test_jobs_of_a_run_that_are_out_or_held_come_back_into_their_place() -> None:
    roster = Roster(QueueRules(per_key=2), 0, 0.0)
    alike = (b"a", 5, 0, 0.0, "", 1, True)
    roster.add_alike(range(4), *alike)
    assert roster.take(9, 0.0) == [0, 1]
    roster.note_end(1, "retry", 0.0)
    assert roster.take(9, 0.0) == []
    roster.add_alike(range(2), *alike)
    assert roster.waiting == 4
    assert roster.take(9, 0.0) == [0, 1]
