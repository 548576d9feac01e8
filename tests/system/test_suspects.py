"""What was in a batch when its worker died is suspect: it runs alone until it has ended."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from tests.system.conftest import Execute

from penstock import App, Snooze


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize("seconds", [0.0, 0.01], ids=["at once", "later"])
def test_a_snooze_does_not_bring_it_back_into_a_batch(
    app: App, execute: Execute, order: Literal["key"] | None, seconds: float
) -> None:
    queue = app.queue("q", partitions=1, order=order)
    calls: list[list[int]] = []

    @queue.task(batch=5, key="key")
    def work(items: list[dict[str, Any]]) -> None:
        numbers = [item["n"] for item in items]
        is_new = all(numbers[0] not in call for call in calls)
        calls.append(numbers)
        if is_new:
            raise Snooze(seconds)

    ids = work.enqueue_many([{"n": n, "key": "k"} for n in range(3)])
    execute("update penstock.ready set rescues = 1")
    while any(app.job(job).state != "succeeded" for job in ids):
        app.work(until_idle=True)
    assert [len(call) for call in calls] == [1] * 6
    assert [app.job(job).attempt for job in ids] == [1, 1, 1]
