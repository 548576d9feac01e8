"""Calls that cannot be are refused by name, with what there is; type checkers refuse them too.

Each `type: ignore` below is checked: where a checker accepted the call, it would be unused, which is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

import penstock.spark as ps
from penstock import App, InvalidInput
from penstock.model.wrong_calls import check_call, explain_wrong_calls

URL = "postgresql://nowhere/x"


@pytest.fixture
def app() -> App:
    return App(URL)


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        call()
    return caught.value.field, caught.value.problem


def test_an_option_that_there_is_not_is_refused_with_what_was_meant_and_what_there_is(app: App) -> None:
    queue = app.queue("q")

    @queue.task
    def send(to: str) -> None: ...

    wrong: dict[str, Callable[[], object]] = {
        "App has no option 'leese' (did you mean 'lease'?); the options are url, shards,": lambda: App(leese=1),  # type: ignore[call-arg]
        "app.queue has no option 'odrer' (did you mean 'order'?); the options are name, partitions, order,": (
            lambda: app.queue("x", odrer="key")  # type: ignore[call-arg]
        ),
        "task.options has no option 'prioritty' (did you mean 'priority'?); the options are priority, run_at,": (
            lambda: send.options(prioritty=1)  # type: ignore[call-arg]
        ),
        "app.cron has no option 'arg' (did you mean 'args'?); the options are name, expression, task, args,": (
            lambda: app.cron("c", "* * * * *", send, arg={})  # type: ignore[call-arg]
        ),
        "app.jobs has no option 'que' (did you mean 'queue'?); the options are queue, partition,": (
            lambda: app.jobs(que="q")  # type: ignore[call-arg]
        ),
        "app.resize has no option 'partition' (did you mean 'partitions'?); the options are queue, partitions": (
            lambda: app.resize("q", partition=2)  # type: ignore[call-arg]
        ),
        "app.work has no option 'concurency' (did you mean 'concurrency'?); the options are queues,": (
            lambda: app.work(concurency=2)  # type: ignore[call-arg]
        ),
        "app.awork has no option 'concurency'": lambda: asyncio.run(app.awork(concurency=2)),  # type: ignore[call-arg]
        "app.purge has no option 'stat' (did you mean 'state'?)": lambda: app.purge("q", stat="ready"),  # type: ignore[call-arg]
        "ps.load has no option 'keey' (did you mean 'key'?); the options are": lambda: ps.load(keey="a"),  # type: ignore[call-arg]
        "a task has no option 'max_attempt' (did you mean 'max_attempts'?); the options are name, key,": (
            lambda: queue.task(max_attempt=1)(send)  # type: ignore[call-overload]
        ),
    }
    for told, call in wrong.items():
        field, problem = refused(call)
        assert problem.startswith(told)
        assert f"'{field}'" in told


def test_a_filter_that_there_is_not_is_refused_before_a_database_is_asked(app: App) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: app.cancel(quee="q"),  # type: ignore[call-overload]
        lambda: app.retry(quee="q"),  # type: ignore[call-overload]
    )
    for call in calls:
        field, problem = refused(call)
        assert (field, problem[:60]) == ("quee", "jobs cannot be chosen by it (did you mean 'queue'?); the fil")


def test_what_is_left_out_given_twice_or_by_position_is_named(app: App) -> None:
    send = app.queue("q").task(lambda to: None)
    for call, told in {
        lambda: app.resize("q"): ("partitions", "app.resize needs it; its arguments are queue, partitions"),  # type: ignore[call-arg]
        lambda: app.resize("q", 8): (  # type: ignore[call-arg]
            "partitions",
            "app.resize takes only queue by position; give by name: partitions",
        ),
        lambda: app.queue("x", 4): None,  # type: ignore[call-arg]
        lambda: send.options(1): None,
        lambda: app.queue("x", name="y"): (  # type: ignore[misc]
            "name",
            "app.queue is given it twice, by position and by name; give it once",
        ),
    }.items():
        assert told is None or refused(call) == told
        assert refused(call)


def test_a_type_error_of_the_call_itself_stays_what_it_is() -> None:
    @explain_wrong_calls
    def add(one: Any, other: Any) -> Any:
        return one + other

    with pytest.raises(TypeError, match="unsupported operand"):
        add(1, "2")
    check_call(add, "add", (1,), {"other": 2})
    assert add(1, other=2) == 3


def test_what_is_declared_twice_names_the_options_that_differ(app: App) -> None:
    queue = app.queue("q", limit=2)
    field, problem = refused(lambda: app.queue("q", limit=3))
    assert field == "limit"
    assert problem.startswith("queue 'q' is declared twice on this app, with limit=2 and 3; declare it once")
    send = queue.task(lambda to: None)
    app.cron("c", "0 3 * * *", send, args={"to": "a"})
    field, problem = refused(lambda: app.cron("c", "0 4 * * *", send, args={"to": "a"}))
    assert field == "expression"
    assert "expression='0 3 * * *' and '0 4 * * *'; declare" in problem


def test_a_cron_is_given_a_task_and_its_arguments_by_name(app: App) -> None:
    wrong: list[Any] = [5, ["a"], {1: 2}, "to=a"]
    send = app.queue("q").task(lambda to: None)
    for args in wrong:
        assert refused(lambda: app.cron("c", "0 3 * * *", send, args=args))[0] == "args"  # noqa: B023
    bound: Any = send.options(priority=1)
    field, problem = refused(lambda: app.cron("c", "0 3 * * *", bound))
    assert (field, problem) == ("task", "a task is needed, not Bound; pass the function that @queue.task was put on")


def test_a_generator_is_no_handler(app: App) -> None:
    def numbers() -> Generator[int, None, None]:
        yield 1

    async def later() -> Any:
        yield 1

    class Calls:
        __name__ = "calls"

        def __call__(self) -> Generator[int, None, None]:
            yield 1

    queue = app.queue("q")
    for handler in (numbers, later, Calls()):
        field, problem = refused(lambda: queue.task(handler))  # noqa: B023
        assert field == "task"
        assert "is a generator: its body would never run; return a value" in problem
