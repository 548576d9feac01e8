"""Where Java is missing or too old, that is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import PenstockError
from penstock.spark.sessions.start import ensure_java


def _java(folder: Path, version: str) -> None:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)


def test_a_missing_java_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PenstockError, match=r"^Spark needs Java and none was found: install Java 17 .*JAVA_HOME$"):
        ensure_java()


@pytest.mark.parametrize(("version", "said"), [("1.8.0_292", "8"), ("11.0.2", "11")])
def test_an_old_java_is_told_by_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, said: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    _java(tmp_path, version)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(PenstockError, match=f"needs Java 17 or newer, .* is {said}: install"):
        ensure_java()
    _java(tmp_path, "17.0.15")
    ensure_java()
