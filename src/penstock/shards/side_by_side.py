"""The same question to several databases at once.

The threads are kept for the next question: a worker asks several times a second, and most answers come sooner than a
thread is started. There are as many as questions are under way: an act may ask several databases itself, and would wait
for ever where the threads were all taken by those that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from penstock.deadline import in_this_call
from penstock.forking import renew_in_children
from penstock.storage.connection.database import Database

__all__ = ["side_by_side", "start_asking"]

T = TypeVar("T")

# More than there can be: every submission finds an idle thread or starts one.
_NO_BOUND = 1 << 20


class _Askers:
    """The threads of this process that ask, besides those that wait for the answers."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NO_BOUND, thread_name_prefix="penstock-ask")
        renew_in_children(self, _Askers.__init__)

    def ask(self, act: Callable[[Database], T], databases: Sequence[Database]) -> list[T]:
        answers = [self._threads.submit(in_this_call(act), database) for database in databases[1:]]
        try:
            first = act(databases[0])
        finally:
            wait(answers)
        return [first, *(answer.result() for answer in answers)]

    def start(self, act: Callable[[Database], T], database: Database) -> Future[T]:
        return self._threads.submit(in_this_call(act), database)


_askers = _Askers()


def side_by_side(act: Callable[[Database], T], databases: Sequence[Database]) -> list[T]:
    """What becomes of an act on each of these, in their order; returns when all are done, also where one raises."""
    return _askers.ask(act, databases)


def start_asking(act: Callable[[Database], T], database: Database, is_only: bool = False) -> Future[T]:
    """An act on a database that is not waited for; where it is the only one there is nothing to do meanwhile."""
    if not is_only:
        return _askers.start(act, database)
    done: Future[T] = Future()
    try:
        done.set_result(act(database))
    except Exception as error:
        done.set_exception(error)
    return done
