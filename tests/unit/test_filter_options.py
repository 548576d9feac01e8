"""The commands that choose jobs have an option for everything by which jobs are chosen."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from penstock.cli import change, look
from penstock.model.job_filters import FILTERS


@pytest.mark.parametrize(
    "command", [look.jobs, change.cancel, change.retry, change.purge], ids=lambda each: each.__name__
)
def test_a_command_that_chooses_jobs_has_every_filter(command: Callable[..., None]) -> None:
    assert set(FILTERS) <= set(inspect.signature(command).parameters)
