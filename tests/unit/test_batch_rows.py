"""How large a batch is."""

from __future__ import annotations

from penstock.policy.batch_rows import FEWEST, MOST, BatchRows


def test_batches_grow_while_they_are_quick_and_full() -> None:
    rows = BatchRows(None)
    assert rows.wanted == FEWEST
    rows.observe(FEWEST - 1, 0.0)
    rows.observe(FEWEST, 1.0)
    assert rows.wanted == FEWEST
    for _ in range(20):
        rows.observe(rows.wanted, 0.01)
    assert rows.wanted == MOST


def test_what_was_given_is_kept() -> None:
    rows = BatchRows(100)
    rows.observe(100, 0.0)
    assert rows.wanted == 100
