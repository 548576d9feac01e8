"""The command line about keys: which are blocked, release, resize."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.cli_runs import CommandLine

TASKS = """
from penstock import App

app = App()
updates = app.queue("updates", partitions=2, order="key", on_dead="halt")


@updates.task(key="customer", max_attempts=1)
def update(customer: str, fails: bool = False):
    if fails:
        raise ValueError("no")
"""


@pytest.fixture
def penstock(tmp_path: Path, urls: list[str]) -> CommandLine:
    (tmp_path / "tasks.py").write_text(TASKS)
    return CommandLine(tmp_path, " ".join(urls))


def test_a_halted_key_is_listed_and_released(penstock: CommandLine) -> None:
    failed = penstock.done("enqueue", "tasks", "update", "customer=c-1", "fails=true", "--json").json["id"]
    behind = penstock.done("enqueue", "tasks", "update", "customer=c-1", "--json").json["id"]
    assert penstock.done("blocked-keys", "updates").out == "no key of queue 'updates' is blocked\n"
    penstock("work", "tasks", "--until-idle")
    (blocked,) = penstock.done("blocked-keys", "updates", "--json").json["keys"]
    assert (blocked["key"], blocked["job_id"], blocked["waiting"], blocked["until"]) == ("c-1", failed, 1, None)
    assert f"halted by job {failed}" in penstock.done("blocked-keys", "updates").out
    assert "not halted" in penstock.refused("release", "updates", "c-2")
    assert "not base64" in penstock.wrong("release", "updates", "c-1", "--base64")
    assert penstock.done("release", "updates", "Yy0x", "--base64", "--json").json == {
        "queue": "updates",
        "key": {"base64": "Yy0x"},
    }
    assert penstock.done("blocked-keys", "updates", "--json").json["keys"] == []
    penstock("work", "tasks", "--until-idle")
    assert penstock.done("job", behind, "--json").json["state"] == "succeeded"
    assert "`penstock blocked-keys updates`" in penstock.refused("release", "updates", "c-1")


def test_a_queue_is_resized_and_how_far_it_is_is_told(penstock: CommandLine) -> None:
    for customer in range(8):
        penstock.done("enqueue", "tasks", "update", f"customer=c-{customer}")
    done = penstock.done("resize", "updates", "3", "--json").json
    assert {name: done[name] for name in ("queue", "partitions", "epoch")} == {
        "queue": "updates",
        "partitions": 3,
        "epoch": 2,
    }
    assert sum(each["jobs"] for each in done["draining"]) == 8
    again = penstock.done("resize", "updates", "3").out
    assert again.startswith("queue 'updates' has 3 partitions\n")
    assert "updates__p1" in again
    penstock("work", "tasks", "--until-idle")
    assert penstock.done("resize", "updates", "3").out == "queue 'updates' has 3 partitions\n"
    assert penstock.done("resize", "updates", "1").out == "queue 'updates' has 1 partition\n"
    assert "partitions" in penstock.refused("resize", "updates", "0")
    assert "does not exist" in penstock.refused("resize", "nothing", "3")
    penstock.wrong("resize", "updates", "many")
