"""Idempotency keys in users' own tests: unique for each ordering key where the queue has rules about keys."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App


@pytest.mark.parametrize(("options", "jobs"), [({}, 1), ({"limit": 1}, 1), ({"order": "key"}, 2)])
def test_a_repeated_idempotency_key_is_known_within_its_key_on_ordered_queues(
    options: dict[str, Any], jobs: int
) -> None:
    app = App("postgresql://nowhere/x")
    task = app.queue("q", **options).task(name="t", key="customer")(lambda customer: customer)
    with app.testing() as testing:
        for customer in ("a", "b", "a", "b"):
            task.options(idempotency_key="once").enqueue(customer=customer)
        assert len(testing.jobs) == jobs
