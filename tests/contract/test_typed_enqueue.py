"""Type checkers know a task's calls by its handler's signature, and refuse what does not fit it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock

CALLS = Path(__file__).parent / "typed_calls.py"
SOURCE = Path(penstock.__file__).parents[1]


def mypy(calls: Path) -> set[int]:
    """The lines that mypy refuses."""
    settings = calls.with_name("mypy.ini")
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n", encoding="utf-8")
    command = ["mypy", "--config-file", str(settings), "--cache-dir", str(calls.with_name("cache")), str(calls)]
    environment = os.environ | {"MYPYPATH": str(SOURCE)}
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=environment)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return {int(line) for line in re.findall(rf"{calls.name}:(\d+): error", ran.stdout)}


def pyright(calls: Path) -> set[int]:
    """The lines that pyright refuses."""
    pytest.importorskip("pyright", reason="a development environment from before pyright: make setup")
    settings = {"include": [calls.name], "extraPaths": [str(SOURCE)], "pythonVersion": "3.11"}
    calls.with_name("pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(calls.parent)]
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_type_checker_refuses_wrong_arguments_and_no_right_ones(
    check: Callable[[Path], set[int]], tmp_path: Path
) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(re.sub(r"# type: ignore\S*", "", CALLS.read_text(encoding="utf-8")), encoding="utf-8")
    lines = calls.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# refused:" in line}
    assert len(marked) > 25
    refused = check(calls)
    assert [lines[number - 1] for number in sorted(marked - refused)] == []
    assert [lines[number - 1] for number in sorted(refused - marked)] == []
