"""The rules of a queue as a made-up next version of Penstock has them: two options more than there are.

`burst` must be known to whoever works on a queue that has it; `label` may be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from penstock.model import queue, rules
from penstock.model.checks import checked_count, checked_name
from penstock.model.option import Kind, option
from penstock.storage.catalogue import queues as catalogue
from penstock.storage.work import owner, workers

__all__ = ["NextRules", "newer_program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRules(rules.QueueRules):
    """What a new option takes: a field."""

    burst: int | None = option(Kind.LIVE, checked_count)
    label: str | None = option(Kind.LOGGED, checked_name, may_be_ignored=True)


@contextmanager
def newer_program() -> Iterator[None]:
    """In the block this program is the next version."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (queue, catalogue, owner, workers):
            patch.setattr(module, "QueueRules", NextRules)
        yield
