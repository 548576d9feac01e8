"""Completion in bash, zsh and fish: what their own users see at Tab, and what the program tells each of them."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from tests.system.cli_runs import CommandLine, Run
from tests.system.terminals import Terminal

from penstock import App, embedded
from penstock.cli.program import program

SHELLS = ("bash", "zsh", "fish")
# How each is begun without its user's settings, and reads the script.
INTERACTIVE = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./script"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source ./script"),
    "fish": (["fish", "--no-config", "-i"], "source script"),
}
# Names that a shell would evaluate, expand, or take for something else than a word.
EVIL = [
    "b$(touch owned)",
    "b`touch owned`",
    "b;touch owned;",
    "b'\";touch owned;'",
    "b c",
    "b\\",
    "b*",
    "-b",
    "b\x1b[2J",
    "b\n",
]


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    made = CommandLine(tmp_path, database_url)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "penstock").write_text(f'#!/bin/sh\nexec {" ".join(made.command())} "$@"\n')
    (folder / "penstock").chmod(0o755)
    made.environment["PATH"] = f"{folder}{os.pathsep}{made.environment['PATH']}"
    made.environment |= {"HOME": str(tmp_path), "PS1": "$ ", "PROMPT": "$ "}
    return made


@pytest.fixture
def named(database_url: str) -> Iterator[App]:
    """An app with queues of good and of bad names."""
    with App(database_url) as app:
        for name in ("billing.invoices", "mail", "mail-2", *EVIL):
            app.queue(name)
        app.queues()
        yield app


def told(penstock: CommandLine, shell: str, line: str, **environment: str) -> Run:
    """What the program tells a shell that asks how a line may go on."""
    words = line.split(" ")
    asked = {"_PENSTOCK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return penstock(**asked, _TYPER_COMPLETE_FISH_ACTION="get-args", **environment)


@pytest.mark.parametrize("shell", SHELLS)
def test_at_tab_a_shell_completes_commands_options_and_names(
    penstock: CommandLine, named: App, tmp_path: Path, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine; what the program tells it is tested below")
    (tmp_path / "script").write_text(penstock.done("completion", shell).out)
    command, setting_up = INTERACTIVE[shell]
    with Terminal(command, tmp_path, penstock.environment, columns=120) as terminal:
        terminal.press(
            setting_up, "enter", "echo set-up-$((40+2))" if shell != "fish" else "echo set-up-(math 40+2)", "enter"
        )
        terminal.shows("set-up-42")
        terminal.press("penstock blocked", "tab")
        terminal.shows("penstock blocked-keys")
        terminal.press("bill", "tab")
        terminal.shows("penstock blocked-keys billing.invoices")
        terminal.press("\x15", "penstock retry --par", "tab")
        terminal.shows("penstock retry --partition")
        terminal.press("\x15", "penstock jobs --queue b", "tab")
        terminal.shows("penstock jobs --queue billing.invoices")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_told_the_same(penstock: CommandLine, named: App, shell: str, tmp_path: Path) -> None:
    assert "billing.invoices" in told(penstock, shell, "penstock stats b").out
    queues = told(penstock, shell, "penstock purge ").out
    assert "mail" in queues
    assert "mail-2" in queues
    for name in EVIL:
        assert name not in queues.splitlines()
    assert "touch" not in queues
    assert "\x1b" not in queues
    assert "failed" in told(penstock, shell, "penstock jobs --state f").out
    assert "fish" in told(penstock, shell, "penstock completion f").out
    assert "create" in told(penstock, shell, "penstock token c").out
    everything = told(penstock, shell, "penstock ").out
    assert all(name in everything for name in typer.main.get_command(program).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", SHELLS)
def test_options_of_every_command_are_told(penstock: CommandLine, shell: str) -> None:
    commands = typer.main.get_command(program).commands  # type: ignore[attr-defined]
    for name in ("retry", "limit", "top", "work", "load"):
        options = {word for each in commands[name].params for word in each.opts if word.startswith("--")}
        found = told(penstock, shell, f"penstock {name} --").out
        assert all(option in found for option in options), name


def test_without_a_database_nothing_is_said_made_or_started(tmp_path: Path, folder: Path) -> None:
    penstock = CommandLine(folder, "")
    del penstock.environment["PENSTOCK_URL"]
    run = told(penstock, "bash", "penstock stats ")
    assert (run.code, run.out.strip(), run.err) == (0, "", "")
    assert list(folder.iterdir()) == []
    with App() as app:
        app.queue("mail")
        app.migrate()
        assert told(penstock, "bash", "penstock stats ").out.strip() == "mail"
        home = embedded.find_nearest(folder)
        assert home is not None
        assert embedded.is_running(home)


@pytest.mark.parametrize("kind", ["refuses", "hangs", "is nonsense"])
def test_a_database_that_does_not_answer_is_not_waited_for(penstock: CommandLine, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if kind == "refuses":
            silent.close()
        url = "nonsense" if kind == "is nonsense" else f"postgresql://u@127.0.0.1:{port}/x"
        run = told(penstock, "bash", "penstock stats ", PENSTOCK_URL=url)
    assert (run.code, run.out.strip(), run.err) == (0, "", "")


def test_a_shell_that_there_is_no_script_for_is_refused(penstock: CommandLine) -> None:
    assert "give bash, zsh, fish" in penstock.refused("completion", "tcsh")
    for shell in SHELLS:
        assert penstock.done("completion", shell, "--json").json["script"].strip()
