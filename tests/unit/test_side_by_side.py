"""Several databases are asked at once, in threads that are kept for the next question."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest

from penstock.deadline import current_deadline, within
from penstock.shards.side_by_side import side_by_side

T = TypeVar("T")


def ask(act: Callable[[Any], T], numbers: Sequence[int]) -> list[T]:
    """Numbers do for databases: whoever asks only hands them on."""
    return side_by_side(act, cast("Any", numbers))


def test_answers_come_in_the_order_of_the_databases() -> None:
    everybody_is_there = threading.Barrier(3)

    def answer(number: int) -> int:
        everybody_is_there.wait(30)  # breaks where one is asked after another
        return number * 10

    assert ask(answer, [1, 2, 3]) == [10, 20, 30]


def test_threads_are_kept_for_the_next_question() -> None:
    def started() -> int:
        return len([each for each in threading.enumerate() if each.name.startswith("penstock-ask")])

    together = threading.Barrier(4)
    ask(lambda _: together.wait(30), range(4))
    for _ in range(100):
        ask(lambda _: None, range(4))
    # A thread that has just answered may not be waiting yet when the next question comes: a few more are started.
    assert started() < 100


def test_an_act_may_ask_several_itself() -> None:
    def ask_on(depth: int) -> int:
        return 1 if depth == 0 else sum(ask(lambda _: ask_on(depth - 1), range(3)))

    assert ask_on(4) == 3**4


def test_all_have_ended_when_one_raises() -> None:
    go_on = threading.Event()
    ended = []

    def answer(number: int) -> None:
        if number == 0:
            threading.Timer(0.05, go_on.set).start()
            raise LookupError("the first")
        go_on.wait(30)
        ended.append(number)

    with pytest.raises(LookupError, match="the first"):
        ask(answer, range(3))
    assert sorted(ended) == [1, 2]


def test_the_deadline_of_the_call_is_everybodys() -> None:
    with within(60.0) as deadline:
        assert ask(lambda _: current_deadline(), range(3)) == [deadline] * 3
    assert ask(lambda _: current_deadline(), range(3)) == [None] * 3


def test_a_forked_child_has_threads_of_its_own() -> None:
    ask(lambda _: None, range(3))
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(sum(ask(lambda number: number, [20, 21, 1])))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
