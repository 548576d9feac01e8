"""Moving a partition from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.shards.place import Place
from tests.system.cli_runs import CommandLine


@pytest.fixture
def penstock(tmp_path: Path, place: Place, shard_urls: list[str]) -> CommandLine:
    return CommandLine(tmp_path, " ".join(shard_urls))


def test_a_partition_is_moved_by_number_or_name_to_a_shard_by_number_or_url(
    penstock: CommandLine, place: Place, shard_urls: list[str]
) -> None:
    place.enqueue(1, 3)
    title, *rows = penstock.done("shards", "move", "q", "0", "2").out.splitlines()
    assert title == "partition 0 of queue 'q' lives there"
    assert [row.split() for row in rows] == [["still", "drains", "jobs"], ["q", "3"]]
    assert {each.shard for each in place.app.stats("q").partitions} == {"2"}
    record = penstock.done("shards", "move", "q", "q", shard_urls[0], "--json").json
    assert (record["queue"], record["partitions"], record["epoch"]) == ("q", 2, 3)
    assert sorted(each.shard for each in place.app.stats("q").partitions) == ["1", "2"]


def test_what_is_not_there_is_refused(penstock: CommandLine) -> None:
    assert "has no partition 7" in penstock.refused("shards", "move", "q", "7", "2")
    assert "there is no shard" in penstock.refused("shards", "move", "q", "0", "9")
    assert "nothing" in penstock.refused("shards", "move", "nothing", "0", "2")
