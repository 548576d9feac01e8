"""`penstock top`, as a person has it before them: at a real terminal, over a real database."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.proxy import Proxy
from tests.system.cli_runs import CommandLine
from tests.system.facts import eventually
from tests.system.terminals import Terminal

from penstock import App, State

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
EVIL = "e\x1b]0;owned\x07\x1b[2Jvil\u202egnp.\u5b57"


class Shop:
    """A system with something wrong in most of its queues."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        orders = self.app.queue("orders", order="key", on_dead="halt", partitions=2)
        mail, many, reports = self.app.queue("mail"), self.app.queue("many"), self.app.queue("reports")

        @orders.task(key="customer", max_attempts=1)
        def book(customer: str) -> None:
            raise ValueError(f"{customer} has no address\x1b[31m")

        @mail.task(max_attempts=1)
        def send(to: str) -> None:
            raise ConnectionError(f"no route to {to}")

        @reports.task
        def render(number: int) -> None: ...

        @many.task
        def count(number: int) -> None: ...

        book.enqueue_many([{"customer": each} for each in ("c-1", "c-2", EVIL)])
        self.letters = send.enqueue_many([{"to": f"host-{number}"} for number in range(4)])
        self.app.work(until_idle=True)
        render.enqueue_many([{"number": number} for number in range(7)])
        count.enqueue_many([{"number": number} for number in range(30)])
        self.app.pause("many")


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    made = Shop(database_url)
    with made.app:
        yield made


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


def top(penstock: CommandLine, *words: str, columns: int = 80, lines: int = 24) -> Terminal:
    command = penstock.command("top", "--every", "0.2", *words)
    return Terminal(command, penstock.folder, penstock.environment, columns, lines)


def order(text: str) -> list[str]:
    """The queues on the screen, from above."""
    table = text[text.index("attention  ") if "attention  " in text else text.index("attention*") :]
    return [line[2:].split()[0] for line in table.splitlines()[1:5]]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (160, 50)])
def test_what_is_wrong_comes_first_in_words(penstock: CommandLine, shop: Shop, columns: int, lines: int) -> None:
    with top(penstock, columns=columns, lines=lines) as terminal:
        text = terminal.shows("! orders: 3 keys halted, the first ", "reports has no worker: 7 jobs waiting", "q quit")
        rows = text.splitlines()
        assert rows[1].startswith("4 queues, 37 waiting, 0 running; 0 workers")
        assert text.index("no worker: 7 jobs") < text.index("orders: 3 keys halted")
        table = [line[2:] for line in rows if line.startswith(("  ", "> "))]
        assert any(line.startswith("orders ") and line.rstrip().find("3 halted") > 0 for line in table)
        assert any(line.startswith("many ") and "paused" in line for line in table)
        assert ("scheduled" in text) is (columns == 160)
        assert max(map(len, rows)) <= columns
        assert len(rows) == lines
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.raw.rstrip().endswith(LEAVES)
        assert terminal.settings == terminal.settings_before


def test_it_sorts_by_each_column_and_keeps_what_is_selected(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock, "--sort", "queue") as terminal:
        assert order(terminal.shows("queue*", "mail", "many", "orders", "reports")) == [
            "mail",
            "many",
            "orders",
            "reports",
        ]
        terminal.press("down", "down")
        terminal.shows("> orders")
        terminal.press("s")
        assert order(terminal.shows("sorted by waiting", "> orders"))[:2] == ["many", "reports"]
        terminal.press("S", "S")
        assert order(terminal.shows("sorted by attention", "> orders"))[0] == "orders"
        terminal.press("/", "rep", "enter")
        text = terminal.until(lambda text: "reports" in text and "mail" not in text.split("queue  ")[-1], "a filter")
        assert "> reports" in text
        terminal.press("escape")
        terminal.shows("mail", "orders")


def test_from_the_queues_to_the_error_of_a_halted_key_and_its_release(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock, "--sort", "queue") as terminal:
        terminal.shows("orders")
        terminal.press("down", "down", "enter")
        terminal.shows("queue orders: order key", "orders__p1", "partition", "shard")
        terminal.press("h")
        text = terminal.shows("keys of queue orders that wait: 3 halted, 0 held", "> c-1", "c-2", "release the key")
        assert "\\x1b]0;owned\\x07" in text
        terminal.press("enter")
        terminal.shows("ValueError: c-1 has no address", '{"customer":"c-1"}', "failure 1")
        terminal.press("escape")
        terminal.shows("3 halted")
        terminal.press("x")
        terminal.shows("Release key 'c-1' of queue 'orders'? y/n")
        terminal.press("n")
        terminal.shows("nothing was changed", "orders that wait: 3 halted")
        terminal.press("x", "y")
        terminal.shows("key 'c-1' goes on", "orders that wait: 2 halted")
        assert {each.key for each in shop.app.blocked_keys("orders")} == {"c-2", EVIL}
        letter = shop.app.blocked_keys("orders")[0]
        terminal.press("r")
        terminal.shows(f"Retry job {letter.job_id}? y/n")
        terminal.press("n")
        terminal.shows("nothing was changed")
        assert shop.app.job(letter.job_id).state == State.FAILED
        terminal.press("r", "y")
        terminal.shows(f"job {letter.job_id} is ready", "orders that wait: 1 halted")
        assert shop.app.job(letter.job_id).state == State.READY
        assert [each.job_id for each in shop.app.blocked_keys("orders")] != [letter.job_id]
        terminal.press("escape", "escape")
        terminal.shows("! orders: 1 key halted")


def test_all_that_needs_attention_and_who_works_are_a_key_away(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock) as terminal:
        terminal.shows("! orders: 3 keys halted")
        terminal.press("a")
        text = terminal.shows("what needs attention, worst first", "many is paused, 30 wait", "Enter its queue")
        sentences = [line[2:] for line in text.splitlines() if line.startswith(("  ", "> "))]
        told = shop.app.attention()
        assert [(each.queue or "") in sentence for each, sentence in zip(told, sentences, strict=True)] == [True] * len(
            told
        )
        terminal.press("down", "enter")
        terminal.shows(f"queue {told[1].queue}", "partition")
        terminal.press("escape", "escape", "w")
        terminal.shows("workers: 0", "no worker is alive: penstock work MODULE:APP starts one")
        worker = threading.Thread(target=lambda: shop.app.work(queues=["mail"], concurrency=3))
        worker.start()
        try:
            (running,) = eventually(shop.app.workers, "a worker is alive")
            terminal.shows("workers: 1", f"> {running.name}", "0 of 3", "mail")
        finally:
            shop.app.stop()
            worker.join()
        terminal.shows("workers: 0")


def test_keys_that_are_held_for_a_retry_stand_behind_the_halted_ones(penstock: CommandLine, shop: Shop) -> None:
    @shop.app.queue("orders", order="key", on_dead="halt", partitions=2).task(
        key="customer", max_attempts=2, backoff=3_600
    )
    def ship(customer: str) -> None:
        raise ValueError("no ship")

    held = ship.enqueue(customer="c-9")
    shop.app.work(["orders"], until_idle=True)
    with top(penstock, "--sort", "queue") as terminal:
        terminal.shows("orders")
        terminal.press("down", "down", "h")
        text = terminal.shows("orders that wait: 3 halted, 1 held", "c-9")
        assert re.search(r"c-9 +held .* ago +in \d+ ", text)
        assert text.index("c-2") < text.index("c-9")
        terminal.press("down", "down", "down")
        terminal.shows("> c-9")
        terminal.press("x")
        terminal.shows(f"key 'c-9' is held until job {held} has run: r retries it now")
        terminal.press("r", "y")
        terminal.shows(f"job {held} is ready", "orders that wait: 3 halted, 0 held")


def test_dead_letters_are_counted_before_they_are_retried(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock) as terminal:
        terminal.shows("mail")
        terminal.press("D")
        terminal.shows("dead letters: 7, newest first", "ConnectionError: no route to host-0", "ValueError")
        terminal.press("escape", "/", "mail", "enter")
        terminal.until(lambda text: "> mail" in text, "only mail")
        terminal.press("d")
        terminal.shows("dead letters of queue mail: 4", "> ")
        terminal.press("r")
        terminal.shows("Retry job ")
        terminal.press("y")
        terminal.shows("is ready", "dead letters of queue mail: 3")
        terminal.press("R")
        terminal.shows("Retry 3 dead letters of queue 'mail'? y/n")
        terminal.press("q")  # Anything but y is no.
        terminal.shows("nothing was changed")
        assert shop.app.stats("mail").dead == 3
        terminal.press("R")
        terminal.shows("Retry 3 dead letters of queue 'mail'? y/n")
        terminal.press("y")
        terminal.shows("3 jobs retried", "there are no dead letters of queue mail")
    assert {shop.app.job(each).state for each in shop.letters} == {State.READY}
    entries = shop.app.audit(act="retry")
    assert len(entries) == 2
    assert {entry.source for entry in entries} == {"cli"}


def test_what_was_cleared_is_no_dead_letter_any_more(penstock: CommandLine, shop: Shop) -> None:
    assert shop.app.purge("mail", state="failed") == 4
    with top(penstock) as terminal:
        terminal.shows("mail")
        terminal.press("D")
        assert "no route" not in terminal.shows("dead letters: 3, newest first", "ValueError")


def test_a_queue_is_paused_and_resumed(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock, "--queue", "reports", "--queue", "many", "--sort", "queue") as terminal:
        text = terminal.shows("> many", "reports", "2 queues")
        assert "orders" not in text
        assert "dead letter" not in text
        terminal.press("p")
        terminal.shows("Resume queue 'many'? y/n")
        terminal.press("y")
        terminal.shows("queue 'many' gives out jobs", "many has no worker")
        assert not shop.app.stats("many").paused
        terminal.press("down", "p", "y")
        terminal.shows("queue 'reports' is paused: what runs goes on", "- reports is paused, 7 wait")
        assert shop.app.stats("reports").paused


def test_a_window_of_another_size_is_filled_anew(penstock: CommandLine, shop: Shop) -> None:
    with top(penstock) as terminal:
        assert "scheduled" not in terminal.shows("orders", "q quit")
        terminal.resize(160, 40)
        rows = terminal.until(lambda text: "scheduled" in text and text.endswith("q quit"), "it is wider").splitlines()
        assert len(rows) == 40
        terminal.resize(40, 10)
        rows = terminal.until(
            lambda text: len(text.splitlines()) == 10 and text.endswith("q quit"), "small"
        ).splitlines()
        assert rows[0].startswith("penstock top")
        assert any(row.startswith("> orders") for row in rows)


def test_more_queues_than_lines_are_scrolled(penstock: CommandLine, shop: Shop) -> None:
    for number in range(40):
        shop.app.queue(f"further-{number:02}")
    shop.app.queues()
    with top(penstock, "--sort", "queue") as terminal:
        terminal.shows("> further-00")
        terminal.press("G")
        assert "further-00" not in terminal.shows("> reports")
        terminal.press("g")
        terminal.shows("> further-00")


@pytest.mark.parametrize(
    ("how", "code"), [("ctrl-c", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), ("error", 1)], ids=str
)
def test_however_it_ends_the_terminal_is_given_back(
    penstock: CommandLine, shop: Shop, how: str | signal.Signals, code: int
) -> None:
    command = penstock.command("top")
    if how == "error":
        broken = "from penstock.cli.live.pages import QueuesPage; QueuesPage.view = None; from penstock.cli import run"
        command = [sys.executable, "-c", f"{broken}; run()", "top"]
    with Terminal(command, penstock.folder, penstock.environment) as terminal:
        if how != "error":
            terminal.shows("orders")
            assert terminal.settings != terminal.settings_before
        if isinstance(how, signal.Signals):
            terminal.signal(how)
        elif how == "ctrl-c":
            terminal.press(how)
        assert terminal.ended() == code
        assert terminal.raw.count(ENTERS) == terminal.raw.count(LEAVES) == 1
        assert (b"Traceback" in terminal.raw.split(LEAVES)[1]) is (how == "error")
        assert b"Traceback" not in terminal.raw.split(LEAVES)[0]
        assert terminal.raw.endswith(b"\x1b[?1049l") or how == "error"
        assert terminal.settings == terminal.settings_before


def test_suspended_it_gives_the_terminal_back_and_takes_it_again(penstock: CommandLine, shop: Shop) -> None:
    with Terminal(
        ["/bin/bash", "--norc", "--noprofile"], penstock.folder, penstock.environment | {"PS1": "$ "}
    ) as terminal:
        terminal.shows("$")
        terminal.press(" ".join(penstock.command("top")), "enter")
        terminal.shows("orders", "q quit")
        terminal.press("ctrl-z")
        eventually(lambda: (terminal.lines, LEAVES in terminal.raw and b"Stopped" in terminal.raw)[1], "it is stopped")
        terminal.press("stty -a; echo 4$((1+1))", "enter")
        eventually(lambda: (terminal.lines, b"42\r\n" in terminal.raw)[1], "the shell answers")
        assert b" -echo " not in terminal.raw
        assert b"-icanon" not in terminal.raw
        shown = len(terminal.raw)
        terminal.press("fg", "enter")
        eventually(lambda: (terminal.lines, b"q quit" in terminal.raw[shown:])[1], "it goes on")
        assert ENTERS in terminal.raw[shown:]
        terminal.press("q")
        eventually(lambda: (terminal.lines, terminal.raw.count(LEAVES) == 2)[1], "it is left")
        terminal.press("exit", "enter")
        assert terminal.ended() == 0


def test_a_database_that_is_away_is_told_and_the_figures_stay(tmp_path: Path, database_url: str, shop: Shop) -> None:
    proxy = Proxy(database_url)
    penstock = CommandLine(tmp_path, proxy.url)
    try:
        with top(penstock) as terminal:
            terminal.shows("orders", "! orders: 3 keys halted")
            proxy.go_down()
            terminal.shows("no answer for ", "these are the last figures", "orders: 3 keys halted", "reports")
            terminal.press("?")
            terminal.shows("penstock top: keys")
            terminal.press("escape")
            proxy.come_up()
            shop.app.release("orders", "c-1")
            text = terminal.shows("orders: 2 keys halted")
            assert "no answer" not in terminal.until(lambda text: "no answer" not in text, "it answers") + text[:0]
            proxy.go_down()
            terminal.shows("no answer for ")
            terminal.press("q")
            assert terminal.ended() == 0
            assert terminal.settings == terminal.settings_before
    finally:
        proxy.close()


def test_nothing_that_others_named_reaches_the_terminal(penstock: CommandLine, shop: Shop, database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q " + EVIL)
        app.queues()
    with top(penstock, "--sort", "queue", columns=120) as terminal:
        terminal.shows("q e\\x1b]0;owned\\x07\\x1b[2Jvil\\u202egnp.")
        terminal.press("D")
        terminal.shows("has no address\\x1b[31m")
        for raw in (b"\x1b]0", b"\x1b[2J" + b"vil", "\u202e".encode(), b"address\x1b"):
            assert raw not in terminal.raw


def test_once_is_a_table_without_a_single_escape_and_so_is_a_pipe(penstock: CommandLine, shop: Shop) -> None:
    for words in (("top", "--once"), ("top",)):
        run = penstock.done(*words)
        assert "\x1b" not in run.out
        lines = run.out.splitlines()
        assert lines[0].startswith("4 queues, 37 waiting, 0 running; 0 workers")
        assert lines[1].startswith("! ")
        (orders,) = [line for line in lines if line.startswith("orders ")]
        assert "3 halted" in orders
    shown = penstock.on_terminal("top", "--once", columns=80).out
    assert "\x1b[?1049h" not in shown
    assert "3 halted" in shown


def test_as_json_it_has_what_the_screen_has(penstock: CommandLine, shop: Shop) -> None:
    told = json.loads(penstock.done("top", "--json", "--sort", "dead", "--queue", "mail", "--queue", "orders").out)
    assert [each["queue"] for each in told["queues"]] == ["mail", "orders"]
    mail, orders = told["queues"]
    assert (mail["dead"], orders["halted_keys"], mail["in_per_second"], orders["out_per_second"]) == (4, 3, 0.0, 0.0)
    assert told["attention"][0]["queue"] == "orders"
    assert (told["workers"], told["unavailable"]) == (0, [])


def test_what_cannot_be_watched_is_refused(penstock: CommandLine, shop: Shop, tmp_path: Path) -> None:
    assert "there is no queue 'nope'" in penstock.refused("top", "--queue", "nope")
    assert "sort" in penstock.refused("top", "--sort", "colour")
    assert "at least 0.2" in penstock.refused("top", "--every", "0.01")
    away = CommandLine(tmp_path, "postgresql://127.0.0.1:1/x")
    assert away("top", "--once").code == 1


def test_without_keys_it_says_so_and_is_left_by_ctrl_c(penstock: CommandLine, shop: Shop) -> None:
    without = "import sys; sys.stdin = open('/dev/null'); from penstock.cli import run; run()"
    with Terminal([sys.executable, "-c", without, "top"], penstock.folder, penstock.environment) as terminal:
        terminal.shows("keys do not work here: Ctrl-C leaves", "orders")
        terminal.press("ctrl-c")
        assert terminal.ended() == 0
