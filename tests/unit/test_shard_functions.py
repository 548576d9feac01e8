"""What is about several databases is in `schema/functions/shards`, and called by the rest of the SQL through a few
functions: whoever reads that need not know more of shards than these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

# What functions and queries outside call, and what for.
DOORS = {
    "is_lead": "whether the catalogue is changed here",
    "is_still": "whether nothing may start in a partition, since its earlier place comes first",
    "waits_for": "that earlier place, for explain",
    "left_unlimited": "whether nothing starts in a place since it was left before there was a limit, for explain",
    "former_place": "the place that a partition's number had, for a resize",
    "may_return": "whether a partition may come back to it",
    "shard_for": "the shard for a new partition",
    "partitions_announced": "partitions of which nobody may write by any map",
    "rest_elsewhere": "what is left of an earlier map on other shards",
}

COMMENT = re.compile(r"--.*")
CALL = re.compile(r"@schema@\.(\w+)\(")
MADE = re.compile(r"^create or replace function @schema@\.(\w+)\(", re.MULTILINE)
PACKAGE = files("penstock")
FUNCTIONS = PACKAGE.joinpath("storage", "schema", "functions")
OF_SHARDS = FUNCTIONS.joinpath("shards")


def read_sql(folder: Traversable, without: Traversable) -> Iterator[str]:
    """The SQL in a folder and those in it but one, without comments."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry != without:
            yield from read_sql(entry, without)
        elif entry.name.endswith(".sql"):
            yield COMMENT.sub("", entry.read_text(encoding="utf-8"))


def names(pattern: re.Pattern[str], folder: Traversable, without: Traversable) -> set[str]:
    return {name for text in read_sql(folder, without) for name in pattern.findall(text)}


def test_the_rest_of_the_sql_calls_what_is_about_shards_through_a_few_functions() -> None:
    # The queries of penstock.shards are about several databases too, and call what they like.
    called = names(CALL, FUNCTIONS, OF_SHARDS) | names(CALL, PACKAGE.joinpath("storage"), FUNCTIONS)
    assert called & names(MADE, OF_SHARDS, OF_SHARDS) == set(DOORS)


def test_no_name_is_given_to_a_function_of_shards_and_to_another() -> None:
    assert not names(MADE, OF_SHARDS, OF_SHARDS) & names(MADE, FUNCTIONS, OF_SHARDS)
