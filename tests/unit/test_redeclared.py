"""What is declared again replaces what was declared before; another function under the same name is refused."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, InvalidInput
from penstock.task.redeclared import is_declared_again
from penstock.worker import Event

CELL = """
@queue.task(max_attempts={attempts})
def send(to: str) -> str:
    return to + "{said}"
"""


def run_cell(app: App, text: str) -> dict[str, Any]:
    """What a notebook does with a cell."""
    names = {"__name__": "__main__", "queue": app.queue("mail")}
    exec(compile(text, "<cell>", "exec"), names)
    return names


def test_a_cell_that_is_run_again_replaces_its_task() -> None:
    app = App()
    first = run_cell(app, CELL.format(attempts=1, said="?"))["send"]
    second = run_cell(app, CELL.format(attempts=2, said="!"))["send"]
    assert app.tasks["mail"] == {"send": second.definition}
    assert app.tasks["mail"]["send"].max_attempts == 2
    with app.testing(inline=True) as testing:
        # Who still has the task of before enqueues as that said.
        assert testing.result(second.enqueue(to="a")) == "a!"
        assert testing.result(first.enqueue(to="a")) == "a?"


def test_another_function_under_the_name_is_refused() -> None:
    app = App()
    queue = app.queue("mail")
    run_cell(app, CELL.format(attempts=1, said=""))
    with pytest.raises(InvalidInput, match=r"has a task 'send' already; give another name="):

        @queue.task
        def send() -> None: ...

    def make(said: str) -> Callable[[], str]:
        def say() -> str:
            return said

        return say

    queue.task(make("a"))
    with pytest.raises(InvalidInput, match="has a task 'say' already"):
        queue.task(make("b"))
    queue.task(name="short")(lambda: 1)
    with pytest.raises(InvalidInput, match="has a task 'short' already"):
        queue.task(name="short")(lambda: 2)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return call


class Counter:
    def count(self, event: Event) -> None: ...


def make_functions() -> list[Callable[..., Any]]:
    def plain() -> None: ...

    def itself() -> object:
        return itself

    @logged
    def decorated() -> None: ...

    return [plain, decorated, itself]


def test_decorators_and_instances_are_seen_through() -> None:
    plain, decorated, itself = make_functions()
    again = make_functions()
    assert is_declared_again(plain, again[0])
    assert is_declared_again(decorated, again[1])
    assert not is_declared_again(itself, again[2])
    assert not is_declared_again(plain, decorated)
    assert not is_declared_again(logged(plain), logged(itself))
    one, other = Counter(), Counter()
    assert is_declared_again(one.count, one.count)
    assert not is_declared_again(one.count, other.count)
    assert not is_declared_again([].append, [].append)
    assert not is_declared_again(functools.partial(plain), functools.partial(plain))
    assert is_declared_again(Counter, Counter)


def test_a_hook_that_is_declared_again_is_called_once() -> None:
    app = App()
    for _ in range(2):
        app.on("failed", make_functions()[0])
    one = Counter()
    app.on("failed", one.count)
    app.on("failed", Counter().count)
    assert len(app.working.hooks._functions["failed"]) == 3


def test_at_a_prompt_queues_and_crons_may_be_declared_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    queue = app.queue("mail", limit=5)
    assert app.queue("mail", limit=5) is queue

    @queue.task
    def send() -> None: ...

    app.cron("nightly", "0 3 * * *", send)
    app.cron("nightly", "0 3 * * *", send)
    with pytest.raises(InvalidInput, match="'mail' is declared twice on this app, with "):
        app.queue("mail", limit=6)
    with pytest.raises(InvalidInput, match="'nightly' is declared twice on this app, with "):
        app.cron("nightly", "0 4 * * *", send)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert app.queue("mail", limit=6).definition.rules.limit == 6
    assert set(app.tasks["mail"]) == {"send"}
    app.cron("nightly", "0 4 * * *", send)
    assert [cron.expression for cron in app._declarations._crons.values()] == ["0 4 * * *"]
