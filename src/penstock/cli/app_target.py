"""From what stands on the command line to an app: MODULE:APP for what needs tasks, a URL for what needs none."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import typer

from penstock.admin import left_out
from penstock.app import App
from penstock.cli.terminal import warn
from penstock.deadline import within
from penstock.errors import NotFound, PartitionUnavailable, PenstockError
from penstock.model.error_text import summarize
from penstock.storage.connection.error_meaning import ConnectionLost
from penstock.storage.connection.schema_name import is_schema_alone
from penstock.storage.connection.urls import checked_urls

__all__ = [
    "check_tasks",
    "ensure_answering",
    "find_app",
    "open_answering_app",
    "open_app",
    "suppress_warnings",
    "unavailable",
]

# A person waits for the answer; a program's calls have more patience.
PATIENCE_SECONDS = 10.0


@contextmanager
def open_answering_app(url: str | None, target: str | None = None) -> Iterator[App]:
    """An app without tasks on these databases, or the one that MODULE:APP names, on its own. One of them answers; at
    the end a word about those that do not.
    """
    if target is not None and url is not None:
        raise typer.BadParameter("the app that --app names has its own database; leave --url or --app out")
    with open_app(url) if target is None else find_app(target) as app, suppress_warnings():
        ensure_answering(app)
        yield app
        if notice := app.databases.drained_notice():
            warn(notice)
        if missing := unavailable(app):
            warn(f"shard {', '.join(missing)} does not answer, and this is without it (see penstock shards)")


def open_app(url: str | None, patience_seconds: float = PATIENCE_SECONDS) -> App:
    """An app without tasks; `url` may name several databases."""
    urls = [] if url is None or is_schema_alone(url) else checked_urls(url)
    if len(urls) > 1:
        return App(shards=urls, request_timeout=patience_seconds)
    return App(url, request_timeout=patience_seconds)


def ensure_answering(app: App, *, creates: bool = False) -> None:
    """Refuse at once, with the cause, where no database can be reached: the app itself would keep trying.

    Embedded servers that are not there yet are created only by what brings in work or workers.
    """
    if creates:
        app.create_embedded()
    refused: PartitionUnavailable | None = None
    for database in app.unchecked_databases:
        try:
            with within(PATIENCE_SECONDS):
                database.connect().close()
        except ConnectionLost as error:
            refused = database.unavailable(error)
        else:
            return
    if refused is not None:
        raise refused


def check_tasks(app: App, queues: Sequence[str]) -> None:
    """Refuse queues that the app does not declare, and a worker that would run nothing."""
    for name in queues:
        if name not in app.tasks:
            raise NotFound(f"the app declares no queue {name!r}; it has: {', '.join(app.tasks) or 'none'}")
    if not any(app.tasks[name] for name in queues):
        where = f" for queue {', '.join(map(repr, queues))}" if queues else ""
        raise NotFound(
            f"the app declares no task{where}, and a worker would run nothing: are they in a module that is not "
            "imported? name it in App(imports=['shop.tasks'])"
        )


def unavailable(app: App) -> list[str]:
    """The names of the shards that are known not to answer."""
    return left_out(app.unchecked_databases)


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """One line about a shard that is down is enough, and the command says it itself."""
    log = logging.getLogger("penstock")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def find_app(target: str) -> App:
    """The app that MODULE:APP names, with the modules that hold its tasks imported."""
    module_name, _, attribute = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    module = _import(module_name)
    app = _attribute(module, attribute or "app")
    for name in app.imports:
        _import(name)
    return app


def _attribute(module: ModuleType, path: str) -> App:
    found: object = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    apps = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    advice = f"did you mean {' or '.join(apps)}?" if apps else "make one there: app = App()"
    raise NotFound(f"module {module.__name__!r} has no App named {path!r}; {advice}")


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        advice = f"; write {Path(name).stem}" if name.endswith(".py") else ", such as tasks:app"
        raise NotFound(f"{name!a:.200} is no name of a module{advice}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise NotFound(f"there is no module {name!r} in {Path.cwd()} or among the installed ones") from None
        raise _broken(name, error) from error
    except PenstockError:
        raise
    except Exception as error:  # A user's module may raise anything while it is imported.
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> PenstockError:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return PenstockError(f"module {name!r} cannot be imported: {summarize(error)}{where}")
