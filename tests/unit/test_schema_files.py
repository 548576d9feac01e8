"""The table files of a schema: in order, each number once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.storage.schema import EMPTY, OURS, TableFile, plan

LAST = OURS.tables[-1].number


def test_numbers_of_table_files_may_be_left_out() -> None:
    later = TableFile(LAST + 7, "later", "create table @schema@.later ();")
    steps = plan(EMPTY, replace(OURS, tables=(*OURS.tables, later)))
    assert [step.name for step in steps][-2:] == [later.title, f"functions {OURS.version}"]


@pytest.mark.parametrize("number", [LAST, LAST - 1])
def test_a_number_of_a_table_file_that_is_given_twice_or_comes_too_late_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="does not come after"):
        replace(OURS, tables=(*OURS.tables, TableFile(number, "again", "")))
