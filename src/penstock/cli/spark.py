"""Spark for a command: started when it is needed, with a word to whoever waits, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.spark.sessions.start import session

__all__ = ["Master", "spark_session", "spark_work"]

Master = Annotated[str, typer.Option("--master", help="Where Spark runs, as its master URL.")]
LOOK_SECONDS = 0.5


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """A session for the length of a command."""
    console = _console()
    with console.status("starting Spark"):
        spark = session(master)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_work(spark: Any, what: str) -> Iterator[Callable[[str], None]]:
    """While a block runs, say what it does and how many of Spark's tasks are done, to a person who waits.

    The block is given a function that says what it does now.
    """
    console = _console()
    if not console.is_terminal:
        yield lambda _: None
        return
    done = Event()
    said = [what]
    with console.status(what) as status:

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(LOOK_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                parts = [f"{each.numCompletedTasks} of {each.numTasks} tasks" for each in stages if each is not None]
                status.update(f"{said[-1]} ({', '.join(parts)})" if parts else said[-1])

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield said.append
        finally:
            done.set()
            watcher.join()


def _console() -> Console:
    return Console(stderr=True, markup=False, emoji=False, highlight=False)
