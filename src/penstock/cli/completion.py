"""Completion: `penstock completion bash` prints what a shell is told once; at each Tab it then asks this program."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.completion import completion_init, get_completion_script, shell_complete  # type: ignore[attr-defined]

from penstock.cli.shared_options import AsJson
from penstock.cli.terminal import show_json
from penstock.errors import InvalidInput

__all__ = ["complete_and_leave", "completion", "is_asked_to_complete"]

PROGRAM = "penstock"
VARIABLE = "_PENSTOCK_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def _complete_shells(incomplete: str) -> list[str]:
    return [each for each in SHELLS if each.startswith(incomplete)]


def completion(
    shell: Annotated[
        str, typer.Argument(metavar="bash|zsh|fish", help="The shell it is for.", autocompletion=_complete_shells)
    ],
    as_json: AsJson = False,
) -> None:
    """Print the script by which a shell completes commands and names."""
    if shell not in SHELLS:
        raise InvalidInput("shell", f"{shell!a:.60} is none there is a script for; give {', '.join(SHELLS)}")
    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
    if as_json:
        show_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script + "\n")


def is_asked_to_complete() -> bool:
    """Whether it is a shell that runs this program, to be told how a line may go on."""
    return VARIABLE in os.environ


def complete_and_leave(program: typer.Typer) -> NoReturn:
    """Tell the shell, and end without waiting for a database that is still being asked."""
    status = 1
    # Nothing that goes wrong is told: the line is still being written.
    with redirect_stderr(io.StringIO()), suppress(Exception):
        completion_init()
        command: Any = typer.main.get_command(program)
        try:
            status = shell_complete(command, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)
