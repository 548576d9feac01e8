"""G1, G3: producers that fork before, during and after their calls; every process is told of its own jobs alone."""

from __future__ import annotations

from tests.fault.stage import Stage, eventually, times
from tests.fault.tally import brought
from tests.system.forks import Forked


def test_g1_g3_nothing_is_lost_or_mixed_up_when_producers_fork(mixed_stage: Stage) -> None:
    stage = mixed_stage

    def produce(generations: int) -> int:
        """In a child: some calls, a child of its own among them."""
        stage.continue_as_child()
        forks = 0
        for number in range(4):
            stage.enqueue_something()
            if number == 1 and generations > 1:
                forks += 1 + Forked(lambda: produce(generations - 1)).answer()
        return forks

    # Before the parent's first call; then while another thread of it is in the middle of calls; then after them.
    first = [Forked(lambda: produce(1)) for _ in range(2)]
    brought("producer forked", 2 + sum(child.answer() for child in first))
    stage.worker()
    stage.worker()
    with stage.producing_anything():
        eventually(stage.settles, "jobs are settled")
        for _ in range(times(1, 4)):
            stage.breathe()
            children = [Forked(lambda: produce(2)) for _ in range(2)]
            brought("producer forked", 2 + sum(child.answer() for child in children))
    last = Forked(lambda: produce(1))
    brought("producer forked", 1 + last.answer())
    stage.enqueue("plain", 3)
    stage.verdict().require("a settle")
