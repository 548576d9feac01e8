"""What handlers say reaches a terminal as text only, also where nobody has set up logging."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

PROGRAM = r"""
import sys
from penstock import App

app = App(sys.argv[1])

@app.queue("q").task(max_attempts=1)
def fail() -> None:
    raise ValueError("\x1b]0;owned\x07 \x1b[2J \u202e gone")

def hook(event) -> None:
    raise ValueError("\x1b[31m in a hook")

app.on("failed", hook)
fail.enqueue()
app.work(until_idle=True)
app.close()
"""


def test_a_handlers_error_is_no_command_to_the_terminal_of_a_program_without_logging(database_url: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, database_url], capture_output=True, timeout=120, check=True)
    said = run.stderr.decode()
    assert "dead letters" in said
    assert "in a hook" in said
    assert r"\x1b]0;owned\x07 \x1b[2J \u202e gone" in said
    assert not set(said) & set("\x1b\x07\u202e")


def test_what_is_safe_is_logged_as_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        logging.getLogger("penstock").warning("job %d:\n\t%s", 7, "grüße")
        logging.getLogger("penstock").warning("job %d: %s", 8, "\x1b")
    first, second = caplog.records
    assert first.args == (7, "grüße")
    assert first.getMessage() == "job 7:\n\tgrüße"
    assert second.getMessage() == "job 8: \\x1b"
