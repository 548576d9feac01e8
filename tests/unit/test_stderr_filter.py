"""What Spark's processes say when they are hung up on is left out, and nothing else is."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.spark.sessions.stderr_filter import _copy_filtered

TRACEBACK = b'Traceback (most recent call last):\n  File "daemon.py", line 97, in worker\n    outfile.flush()\n'
HUNG_UP = TRACEBACK + b"BrokenPipeError: [Errno 32] Broken pipe\n"
CHAINED = HUNG_UP + b"\nDuring handling of the above exception, another exception occurred:\n\n" + HUNG_UP
MIXED = TRACEBACK + TRACEBACK + 2 * b"BrokenPipeError: [Errno 32] Broken pipe\n"
REAL = TRACEBACK + b"ValueError: no such column\n"


def passed_on(said: bytes) -> bytes:
    source, writes = os.pipe()
    reads, target = os.pipe()
    thread = threading.Thread(target=_copy_filtered, args=(source, target))
    thread.start()
    with os.fdopen(writes, "wb") as pipe:
        pipe.write(said)
    thread.join()
    with os.fdopen(reads, "rb") as pipe:
        return pipe.read()


@pytest.mark.parametrize(
    "words",
    [
        HUNG_UP,
        b"PySpark daemon failed to flush the output to the worker process:\n" + HUNG_UP + b"\n",
        CHAINED,
        MIXED,
        TRACEBACK + b"ConnectionResetError: [Errno 104] Connection reset by peer\n",
        b"Setting default log level to WARN\n",
    ],
    ids=["a traceback", "with its heading", "chained", "of two at once", "reset", "a greeting"],
)
def test_last_words_are_left_out(words: bytes) -> None:
    assert passed_on(b"one\n" + words + b"two\n" + words) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "words",
    [REAL, REAL + b"\n" + b"two lines\n", TRACEBACK + HUNG_UP + b"ValueError: x\n", TRACEBACK, b"24/01/01 ERROR x\n"],
    ids=["a traceback", "and what follows", "mixed with last words", "cut off", "a line"],
)
def test_errors_are_shown_whole(words: bytes) -> None:
    assert passed_on(b"one\n" + words) == b"one\n" + words
