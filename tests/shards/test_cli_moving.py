"""Moving a partition and draining a shard from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.shards.place import Place
from tests.system.cli_runs import CommandLine

from penstock import App


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


def test_a_drained_shard_may_go_and_whoever_gives_only_its_url_is_told(
    penstock: CommandLine, place: Place, shard_urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    while place.app.drain_shard(1).state != "drained":
        pass
    advice = (
        "take its URL out of your programs; what ended there, and its part of the figures, is read while it is given"
    )
    checks = penstock.done("doctor", "--json").json
    of_first = {each["name"]: each for each in checks if each["shard"] == "1"}
    assert (of_first["state"]["ok"], of_first["state"]["found"], of_first["state"]["advice"]) == (
        True,
        "drained",
        advice,
    )
    assert not {"workers", "tables ahead", "tasks", "timeouts"} & set(of_first)
    assert {"workers", "tables ahead"} <= {each["name"] for each in checks if each["shard"] == "2"}
    assert "shard 1, workers" not in penstock.done("doctor").out
    assert penstock.done("stats").err == ""

    penstock.environment["PENSTOCK_URL"] = shard_urls[0]
    told = "shard 1 is drained, and no URL of a shard in use is given: "
    told += "give one (app.shards or `penstock shards` lists them)"
    assert penstock("stats").err == f"warning: {told}\n"
    with App(shard_urls[0]) as app:
        assert [each.shard for each in app.stats("q").partitions] == ["2", "2"]
    assert told in [record.getMessage() for record in caplog.records]


def test_what_is_not_there_is_refused(penstock: CommandLine) -> None:
    said = "has no partition 7: give a number from 0 to 1, or one of its names: q, q__p1"
    assert said in penstock.refused("shards", "move", "q", "7", "2")
    assert "there is no shard" in penstock.refused("shards", "move", "q", "0", "9")
    assert "nothing" in penstock.refused("shards", "move", "nothing", "0", "2")
