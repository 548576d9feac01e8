"""The command line on several shards: all of them answer as one, and one that is down is told of in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from tests.fault.proxy import Proxy
from tests.shards.place import Place
from tests.system.cli_runs import CommandLine
from tests.system.terminals import Terminal

MISSING = "warning: shard 2 does not answer, and this is without it (see penstock shards)\n"


@pytest.fixture
def penstock(tmp_path: Path, place: Place, shard_urls: list[str], second: Proxy) -> CommandLine:
    return CommandLine(tmp_path, f"{shard_urls[0]} {second.url}")


def test_a_shard_with_a_locked_table_is_told_of_in_one_line(
    penstock: CommandLine, place: Place, shard_urls: list[str]
) -> None:
    (here,) = place.enqueue(1)
    place.enqueue(2)
    with psycopg.connect(shard_urls[1]) as connection:
        connection.execute("lock penstock.ready in access exclusive mode")
        run = penstock("jobs", "--json")
        assert ([each["id"] for each in run.json["jobs"]], run.json["unavailable"]) == ([str(here)], ["2"])
        assert penstock("stats").err == MISSING


def test_shards_are_listed_with_what_is_on_them(penstock: CommandLine, place: Place, second: Proxy) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 5)
    place.claim(2, 2)
    records = penstock.done("shards", "--json").json["shards"]
    assert [(each["name"], each["health"], each["state"], each["partitions"]) for each in records] == [
        ("1", "up", "active", 1),
        ("2", "up", "active", 1),
    ]
    assert [(each["queued"], each["running"]) for each in records] == [(3, 0), (3, 2)]
    assert "url" not in records[0]  # it holds a password
    title, first, last = penstock.done("shards").out.splitlines()
    assert title.split() == ["shard", "address", "health", "state", "partitions", "queued", "running"]
    assert (first.split()[2:], last.split()[2:]) == (["up", "active", "1", "3", "0"], ["up", "active", "1", "3", "2"])
    second.go_down()
    run = penstock("shards")
    assert (run.code, run.err) == (0, MISSING)
    assert run.out.splitlines()[2].split()[2:] == ["down", "active", "?", "?", "?"]


def test_several_urls_are_taken(penstock: CommandLine, place: Place, shard_urls: list[str]) -> None:
    place.enqueue(2, 5)
    del penstock.environment["PENSTOCK_URL"]
    for written in (" ".join(shard_urls), ",".join(shard_urls), shard_urls[0]):
        assert penstock.done("stats", "q", "--url", written, "--json").json["queue_length"] == 5
    assert "the same URL is given twice" in penstock.refused("stats", "--url", f"{shard_urls[0]} {shard_urls[0]}")


def test_every_command_that_looks_answers_without_the_dead_shard(
    penstock: CommandLine, place: Place, second: Proxy
) -> None:
    (here,) = place.enqueue(1)
    (there,) = place.enqueue(2)
    second.go_down()
    for words in (("stats",), ("stats", "q"), ("jobs",), ("workers",), ("crons",), ("loads",), ("blocked-keys", "q")):
        run = penstock(*words)
        assert (run.code, run.err) == (0, MISSING), (words, run)
        said = penstock(*words, "--json").json
        for record in said if isinstance(said, list) else [said]:
            assert record["unavailable"] == ["2"], words
    assert penstock("job", str(here), "--json").json["state"] == "ready"
    assert re.search(r"q__p1 +(\? +){10}2 \(down\)", penstock("stats", "q").out)
    assert "shard 2" in penstock.refused("job", str(there))
    assert re.match(
        "error: cancelled 1 job on the shards that answered; shard 2", penstock("cancel", "--queue", "q").err
    )


def test_the_doctor_examines_every_shard_and_their_catalogue(
    penstock: CommandLine, place: Place, second: Proxy
) -> None:
    checks = penstock.done("doctor", "--json").json
    assert {each["shard"] for each in checks} == {"1", "2", ""}
    assert [each["name"] for each in checks if not each["shard"]] == ["catalogue", "shards"]
    place.execute(2, "update penstock.queue set rules = '{\"max_length\": 5}'")
    run = penstock("doctor")
    assert run.code == 1
    assert re.search(
        r"bad +all +catalogue +version \d+ on shard 1, version \d+ on shard 2, with other contents", run.out
    )
    place.execute(2, "update penstock.queue set rules = '{}'")
    place.execute(2, "update penstock.catalogue set version = version + 1")
    assert "was it restored from an old backup?" in penstock("doctor").out
    place.execute(2, "update penstock.catalogue set version = version - 1")
    assert penstock("doctor").code == 0
    place.execute(2, "update penstock.catalogue set identity = gen_random_uuid()")
    assert re.search(r"bad +all +shards +shards 1, 2; not those of one system: 2", penstock("doctor").out)
    second.go_down()
    run = penstock("doctor", "--json")
    assert [(each["name"], each["shard"] == "1") for each in run.json if not each["ok"]] == [
        ("database", False),
        ("shards", False),
    ]


def test_up_runs_servers_and_an_app_until_it_is_told_to_stop(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "tasks.py").write_text(
        "from penstock import App\napp = App()\nq = app.queue('q', partitions=2)\n@q.task\ndef t(): ...\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    command = [sys.executable, "-m", "penstock"]
    up = subprocess.Popen(
        [*command, "up", "tasks", "--shards", "2", "--json"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        urls = json.loads(up.stdout.readline())["urls"]
        assert len(urls) == 2
        penstock = CommandLine(tmp_path, " ".join(urls))
        assert len(penstock.done("shards", "--json").json["shards"]) == 2
        while not penstock.done("workers", "--json").json["workers"]:
            pass
        penstock.done("enqueue", "tasks", "t")
        while not penstock.done("jobs", "--state", "succeeded", "--json").json["jobs"]:
            pass
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait() == 0
    up.stdout.close()


def test_up_prints_urls_which_hold_passwords_to_nothing_but_a_terminal(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "tasks.py").write_text("from penstock import App\napp = App()\n@app.queue('q').task\ndef t(): ...\n")
    penstock = CommandLine(tmp_path, database_url)
    command = penstock.command("up", "tasks")
    with subprocess.Popen(command, cwd=tmp_path, env=penstock.environment, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        first = up.stdout.readline()
        up.terminate()
    assert first == "1 shard runs until Ctrl-C\n"
    with Terminal(command, tmp_path, penstock.environment, columns=300) as terminal:
        terminal.shows(f"PENSTOCK_URL='{database_url}'", "1 shard runs until Ctrl-C")


def test_a_shard_is_added_by_its_url(penstock: CommandLine, place: Place, empty_database_url: str) -> None:
    assert penstock.done("shards", "add", empty_database_url).out.startswith("shard 3 is in use")
    assert penstock.done("shards", "add", empty_database_url, "--json").json == {"shard": 3}
    assert [each["name"] for each in penstock.done("shards", "--json").json["shards"]] == ["1", "2", "3"]
    assert "a PostgreSQL URL is needed" in penstock("shards", "add", "nowhere").err
