"""`penstock watch`: a job or a load is followed to its end, and the exit code says how that was."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.fault.proxy import Proxy
from tests.spark.staged import Loader
from tests.system.cli_runs import CommandLine
from tests.system.terminals import Terminal

from penstock import App, Context, Discard


class Shop:
    """Jobs that end as they are told to, once they are let go."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.gate = threading.Event()
        self.queue = self.app.queue("orders")

        @self.queue.task(max_attempts=1)
        def book(context: Context, how: str = "well") -> dict[str, int]:
            context.progress(0.25, "packing \x1b[31m")
            self.gate.wait()
            if how == "discard":
                raise Discard("not wanted\x1b[2J")
            if how != "well":
                raise ValueError("no address\x1b[2J")
            return {"booked": 1}

        @self.queue.task(max_attempts=1)
        def t(n: int) -> None:
            if n < 0:
                raise ValueError("no address")

        self.book = book

    def load(self, name: str, *numbers: int) -> None:
        """A job for each number; those below nothing fail."""
        self.app.migrate()
        loader = Loader(self.app, "orders")
        loader.publish(name, loader.stage(*numbers))


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    made = Shop(database_url)
    with made.app:
        yield made


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


def watching(penstock: CommandLine, *words: str) -> Terminal:
    command = penstock.command("watch", "--every", "0.1", *words)
    return Terminal(command, penstock.folder, penstock.environment, columns=300)


def working(shop: Shop) -> threading.Thread:
    thread = threading.Thread(target=lambda: shop.app.work(until_idle=True))
    thread.start()
    return thread


def test_a_job_is_followed_from_its_wait_to_its_result(penstock: CommandLine, shop: Shop) -> None:
    job = shop.book.enqueue()
    with watching(penstock, str(job)) as terminal:
        terminal.shows(f"job {job} (orders/book): ready, no worker")
        worker = working(shop)
        terminal.shows("running, attempt 1, 25%, packing \\x1b[31m", "[#####---------------]")
        shop.gate.set()
        terminal.shows("succeeded", '{"booked":1}')
        assert terminal.ended() == 0
        worker.join()
        assert b"ready, running" not in terminal.raw
        assert terminal.settings == terminal.settings_before


@pytest.mark.parametrize(
    ("how", "said"), [("badly", "failed, attempt 1"), ("discard", "discarded"), ("cancel", "cancelled, not wanted")]
)
def test_what_ends_otherwise_has_exit_code_1(penstock: CommandLine, shop: Shop, how: str, said: str) -> None:
    job = shop.book.enqueue(how=how)
    if how == "cancel":
        shop.app.cancel(job, reason="not wanted\x1b[2J")
    else:
        shop.gate.set()
        shop.app.work(until_idle=True)
    run = penstock("watch", str(job))
    assert (run.code, run.err) == (1, "")
    assert said in run.out
    assert "\\x1b[2J" in run.out
    assert "\x1b" not in run.out


def test_in_a_pipe_each_change_is_a_line(penstock: CommandLine, shop: Shop) -> None:
    shop.gate.set()
    job = shop.book.enqueue()
    shop.app.work(until_idle=True)
    (line,) = penstock.done("watch", str(job)).out.splitlines()
    assert line.startswith(f"job {job} (orders/book): succeeded")
    told = json.loads(penstock.done("watch", str(job), "--json").out)
    assert (told["job_id"], told["state"], told["result"]) == (str(job), "succeeded", {"booked": 1})


def test_as_json_each_change_is_a_line(penstock: CommandLine, shop: Shop) -> None:
    job = shop.book.enqueue()
    with watching(penstock, str(job), "--json") as terminal:
        terminal.shows('"state":"ready"', '"reason":"no worker')
        worker = working(shop)
        terminal.shows('"state":"running"', '"value":0.25')
        shop.gate.set()
        assert terminal.ended() == 0
        worker.join()
        lines = [json.loads(line) for line in terminal.raw.decode().splitlines() if line.strip()]
        states = [line["state"] for line in lines]
        assert states == sorted(states, key=["ready", "running", "succeeded"].index)
        assert lines[-1]["result"] == {"booked": 1}
        assert all(one != other for one, other in pairwise(lines))


def test_a_watch_that_takes_too_long_has_exit_code_124_and_ctrl_c_leaves_without_a_word(
    penstock: CommandLine, shop: Shop
) -> None:
    job = str(shop.book.enqueue())
    run = penstock("watch", job, "--timeout", "1s", "--every", "0.1")
    assert (run.code, run.err) == (124, "")
    with watching(penstock, job) as terminal:
        terminal.shows("no worker")
        terminal.press("ctrl-c")
        assert terminal.ended() == 130
        assert b"Traceback" not in terminal.raw
        assert b"error" not in terminal.raw
        assert terminal.raw.endswith(b"\r\n")


def test_a_load_is_followed_with_a_bar(penstock: CommandLine, shop: Shop) -> None:
    shop.load("november", 1, 2, 3, 4)
    with watching(penstock, "november") as terminal:
        terminal.shows("load november: running, 0 of 4 done", "[--------------------]")
        shop.app.pause("orders")
        terminal.shows("running, 0 of 4 done, its queue is paused")
        assert "running, queue paused" in penstock.done("loads").out
        shop.app.resume("orders")
        shop.app.work(until_idle=True)
        terminal.shows("load november: done, 4 of 4 done")
        assert terminal.ended() == 0
    assert penstock.done("watch", "november", "--json").json["done"] == 4


def test_a_load_with_dead_letters_or_a_cancelled_one_has_exit_code_1(penstock: CommandLine, shop: Shop) -> None:
    shop.load("bad", -1, -2, 3)
    shop.gate.set()
    shop.app.work(until_idle=True)
    run = penstock("watch", "bad")
    assert (run.code, "done, 3 of 3 done, 2 failed" in run.out) == (1, True), run
    shop.load("unwanted", 1, 2)
    shop.app.cancel_load("unwanted")
    assert penstock("watch", "unwanted").code == 1


def test_a_database_that_is_away_is_told_and_the_watch_goes_on(tmp_path: Path, database_url: str, shop: Shop) -> None:
    job = shop.book.enqueue()
    proxy = Proxy(database_url)
    try:
        with watching(CommandLine(tmp_path, proxy.url), str(job)) as terminal:
            terminal.shows("no worker")
            proxy.go_down()
            terminal.shows("no answer: ")
            shop.gate.set()
            shop.app.work(until_idle=True)
            proxy.come_up()
            terminal.shows("succeeded")
            assert terminal.ended() == 0
    finally:
        proxy.close()


def test_what_there_is_not_is_refused(penstock: CommandLine, shop: Shop) -> None:
    shop.app.migrate()
    assert "load 'nope' does not exist, and a job is given by its id" in penstock.refused("watch", "nope")
    assert "1024" in penstock.refused("watch", "1024")
    assert "at least 0.1" in penstock.refused("watch", "x", "--every", "0.01")
    assert "is no wait" in penstock.refused("watch", "x", "--timeout", "soon")
