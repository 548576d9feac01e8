"""The context of a batch is made of its jobs', and refuses what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import App, InvalidInput


def test_a_batch_is_not_settled_and_reports_for_each_of_its_jobs() -> None:
    app = App("postgresql://nowhere")
    contexts: list[Any] = []

    @app.queue("q").task(batch=10)
    def send(context: Any, items: list[dict[str, Any]]) -> None:
        contexts.append(context)
        context.progress(0.5, "half")

    with app.testing() as test:
        app.enqueue_many([send.job(n=n) for n in range(3)])
        test.drain()

    (context,) = contexts
    assert [job.reported for job in context.jobs] == [[(0.5, "half")]] * 3
    assert (context.job_id, context.queue, context.task, context.attempt) == (1, "q", "send", 1)
    assert not context.is_cancelled
    for job in context.jobs:
        job.is_cancelled = True
    assert context.is_cancelled
    with pytest.raises(InvalidInput, match="is in a batch, whose jobs end when the handler returns"):
        context.settle(None)
    with pytest.raises(InvalidInput, match="declare the task without batch="):
        asyncio.run(context.asettle(None))


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ([], "it names no queue"),
        ({}, "it names no queue"),
        ({"q": 0}, r"of queue 'q': .*; write queues=\{'q': 4\}"),
    ],
)
def test_queues_that_cannot_be_worked_on_are_refused_with_what_to_write(queues: Any, said: str) -> None:
    app = App("postgresql://nowhere")
    app.queue("q")
    with pytest.raises(InvalidInput, match=said):
        app.work(queues=queues)


def test_a_hook_that_is_no_function_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidInput, match=r"write app.on\('failed', note\)"):
        App("postgresql://nowhere").on("failed", 7)  # type: ignore[arg-type]
