"""The program: its commands by name, and what becomes of an error."""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from penstock.acting import Actor, acting_as, current_actor
from penstock.cli import (
    analyse,
    audit,
    causes,
    change,
    crons,
    enqueue,
    keys,
    lake,
    load,
    look,
    schema,
    serve,
    shards,
    top,
    up,
    watch,
    work,
)
from penstock.cli.completion import complete_and_leave, completion, is_asked_to_complete
from penstock.cli.examples import add_examples
from penstock.cli.help_page import Command, Group
from penstock.cli.process_exit import STUCK_STATUS, leave_at_once, limit_exit
from penstock.cli.shared_options import AsJson
from penstock.cli.terminal import complain, say, show_json
from penstock.cli.tokens import tokens
from penstock.errors import PenstockError, WorkerStuck
from penstock.version import __version__
from penstock.visible import visible

__all__ = ["main", "program", "run"]

program = typer.Typer(
    name="penstock",
    cls=Group,
    help="A durable, partitioned job queue on PostgreSQL.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

COMMANDS = {
    "Run": (up.up, work.work, serve.serve, enqueue.enqueue),
    "Look": (
        top.top,
        watch.watch,
        look.stats,
        look.jobs,
        look.job,
        look.explain,
        look.workers,
        causes.causes,
        keys.blocked_keys,
        audit.audit,
    ),
    "Load": (load.load, load.loads, load.pause_load, load.resume_load, load.cancel_load),
    "Analyse": (analyse.report, analyse.advise),
    "Lake": (lake.archive, lake.replay),
    "Change": (
        *(change.cancel, change.retry, change.reschedule, change.pause, change.resume, change.purge, change.limit),
        *(keys.release, keys.resize, change.delete_queue, change.stop_worker),
    ),
    "Database": (schema.migrate, schema.sql, schema.grant, schema.doctor),
}


def version(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        show_json({"version": __version__})
    else:
        say(f"penstock {__version__}")


for panel, functions in (COMMANDS | {"Database": (*COMMANDS["Database"], completion, version)}).items():
    for function in functions:
        program.command(function.__name__.replace("_", "-"), cls=Command, rich_help_panel=panel)(function)
program.add_typer(tokens, rich_help_panel="Database")
program.add_typer(shards.shards, rich_help_panel="Database")
program.add_typer(crons.crons, rich_help_panel="Calendar")
add_examples(program)


@program.callback(invoke_without_command=True)
def _no_command(
    context: typer.Context,
    is_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if is_version:
        version()
        raise typer.Exit()
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> NoReturn:
    """Run the command that was asked for, and exit: 0 done, 1 refused, 2 wrong use, 75 stuck, 124, 130.

    124 is a watch that took too long, 130 what was interrupted.
    """
    if is_asked_to_complete():
        complete_and_leave(program)
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot write is shown as its escape.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    # The pool tells of each connection it cannot make; the error at the end tells all of it.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    sys.exit(_exit_code())


def run() -> NoReturn:
    """`main` as a process of its own, which ends then, whatever threads of handlers do."""
    try:
        main()
    except SystemExit as end:
        limit_exit(end.code if isinstance(end.code, int) else 1)
        raise


@cache
def _command() -> Any:
    """All commands, read from their functions once: a program may run several."""
    return typer.main.get_command(program)


def _exit_code() -> int:
    try:
        with acting_as(Actor(current_actor().name, "cli")):
            code = _command()(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except WorkerStuck as error:
        said, _, stack = str(error).partition("\n")
        complain(said)
        sys.stderr.write(visible(f"{stack}\n" if stack else "", keeps_lines=True))
        leave_at_once(STUCK_STATUS)
    except PenstockError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except typer.Abort:
        complain("stopped")
        return 1
    except typer.TyperException as error:
        complain(_wrong_use(error))
        return 2
    except Exception as error:
        # Only the storage knows the driver, so its errors are told by where they come from. Others are our own bugs.
        if not type(error).__module__.startswith("psycopg"):
            raise
        complain(f"the database refused: {str(error).strip()}")
        return 1
    return code if isinstance(code, int) else 0


def _wrong_use(error: typer.TyperException) -> str:
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "penstock"
    return f"{said.rstrip('.')} (see {command} --help)"
