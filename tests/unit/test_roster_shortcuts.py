"""The usual is done at less cost: whatever happens to a roster, its shortcuts leave it as the long way would."""

from __future__ import annotations

from random import Random

import pytest

from penstock.model.rules import QueueRules
from penstock.policy.roster import Roster, WaitingJob

RULES = [
    QueueRules(per_key=1),
    QueueRules(per_key=1, limit=7),
    QueueRules(per_key=1, on_retry="pass"),
    QueueRules(per_key=1, on_dead="halt"),
    QueueRules(per_key=1, per_key_rate="1000/s"),
    QueueRules(per_key=2),
]
# Without a fair one: there the order in which tenants enter together is nobody's, and the simulation has it.
ENDS = ["retry", "release", "failed", "discarded"]


class LongWay(Roster):
    """Takes no shortcut."""

    def note_succeeded(self, jobs: list[int], now: float) -> None:  # type: ignore[override]
        for job in jobs:
            self.note_end(job, "succeeded", now)

    def _take_singly(self, taken: list[int], most: int) -> None:
        pass

    def add(self, jobs: list[WaitingJob]) -> None:  # type: ignore[override]
        # A key that is known is not classified on the way.
        for job in jobs:
            if job.key is not None:
                self._key(job.key, job.tenant)
        super().add(jobs)


def standing(roster: Roster) -> dict[str, object]:
    """What a roster goes by, in which its shortcuts have a hand."""
    return {
        "keys": {
            name: (key.standing, key.startable, key.waiting, key.out, key.entry and key.entry[:2])
            for name, key in roster._keys.items()
        },
        "out": sorted(roster._out),
        "waiting": roster.waiting,
        "startable": roster.startable,
        "hopeful": roster._hopeful,
        "is_idle": roster.is_idle(0.0),
    }


@pytest.mark.parametrize("seed", range(140))
def test_shortcuts_leave_a_roster_as_the_long_way_would(seed: int) -> None:
    random = Random(seed)
    rules = RULES[seed % len(RULES)]
    rosters = (Roster(rules, 0, 0.0), LongWay(rules, 0, 0.0))
    maps: dict[int, list[int]] = {}
    facts: dict[int, WaitingJob] = {}
    out: list[int] = []
    halted: list[bytes] = []
    number = 0
    for _ in range(120):
        act = random.random()
        if act < 0.4:
            jobs = []
            for _ in range(random.randrange(1, 12)):
                number += 1
                key = b"k%d" % random.randrange(9) if random.random() < 0.95 else None
                tenant, known = random.choice(["a", "b"]), int(random.random() < 0.95)
                pos = number // 4 if random.random() < 0.8 else random.randrange(number)
                priority, epoch = random.choice([5, 5, 5, 3]), random.choice([1] * 9 + [2])
                jobs.append(WaitingJob(number, key, priority, pos, float(pos + 60 * priority), tenant, epoch, known))
            facts |= {job.id: job for job in jobs}
            for roster in rosters:
                roster.add(jobs)
        elif act < 0.6:
            wanted = random.randrange(1, 9)
            taken, expected = (roster.take(wanted, 0.0) for roster in rosters)
            assert taken == expected
            out += taken
        elif act < 0.8 and out:
            random.shuffle(out)
            some, out = out[: len(out) // 2 + 1], out[len(out) // 2 + 1 :]
            for roster in rosters:
                roster.note_succeeded(some, 0.0)
        elif act < 0.87 and out:
            job, end = out.pop(), random.choice(ENDS)
            for roster in rosters:
                roster.note_end(job, end, 0.0)
            if end in ("retry", "release"):
                for roster in rosters:
                    roster.add([facts[job]])
        elif act < 0.93:
            halted = [b"k%d" % random.randrange(9)] if random.random() < 0.5 else []
            for roster in rosters:
                roster.set_halted(halted)
        elif act < 0.96:
            elsewhere = [(-n, b"k%d" % random.randrange(9)) for n in range(random.randrange(3))]
            for roster in rosters:
                roster.set_elsewhere(elsewhere)
        else:
            # By the first map every key went to another partition, which may still have jobs of it.
            maps = {1: [1], 2: [0]} if random.random() < 0.5 else {2: [0]}
            still_open = [(1, 1)] if 1 in maps and random.random() < 0.7 else []
            for roster in rosters:
                roster.set_key_maps(maps, still_open, [])
        shortcut, long_way = map(standing, rosters)
        assert shortcut == long_way
