"""A worker that runs while a newer program gives its queue a rule that it does not know."""

from __future__ import annotations

from typing import Any

import pytest
from tests.system.conftest import Execute, Working
from tests.system.facts import eventually

from penstock import App


@pytest.mark.parametrize("options", [{}, {"order": "key"}], ids=["plain", "ordered"])
def test_a_worker_leaves_a_queue_alone_once_it_has_a_rule_that_must_be_known(
    app: App, execute: Execute, working: Working, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    app.queue("q", **options).task(name="t")(lambda: None)
    other = app.queue("other").task(name="t")(lambda: None)
    app.migrate()
    ids: list[int] = []

    def states() -> set[str]:
        return {app.job(job).state for job in ids}

    def is_left_alone() -> bool:
        ids[:] = [row[0] for row in execute("select penstock.enqueue('q', 't', '{}')")]
        before = app.stats("other").total_completed
        other.enqueue()
        eventually(lambda: app.stats("other").total_completed > before, "the other queue's jobs run")
        return states() == {"ready"}

    with working(app):
        # One that begins only now would be refused.
        first = other.enqueue()
        eventually(lambda: app.job(first).state == "succeeded", "the worker is at work")
        execute("""update penstock.queue set rules = rules || '{"must_know": ["burst"]}' where name = 'q'""")
        eventually(is_left_alone, "nothing of the queue starts")
        eventually(lambda: "queue 'q' has rules this program does not know" in caplog.text, "it is told")
        execute("update penstock.queue set rules = rules - 'must_know' where name = 'q'")
        eventually(lambda: states() == {"succeeded"}, "they run")
