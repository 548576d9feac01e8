"""Other commits of this repository, each in a worktree of its own, to be measured beside what is here."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["commit_of", "git", "in_worktree", "run_in"]


def git(repository: Path, *arguments: str) -> str:
    """What git says."""
    ended = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"git {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def commit_of(repository: Path, name: str) -> str:
    """The commit that git takes a name for."""
    return git(repository, "rev-parse", "--verify", f"{name}^{{commit}}")


@contextmanager
def in_worktree(repository: Path, commit: str) -> Iterator[Path]:
    """A worktree of a commit, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="penstock-compare-") as folder:
        path = Path(folder) / commit[:12]
        git(repository, "worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            git(repository, "worktree", "remove", "--force", str(path))


def run_in(name: str, command: Sequence[str], folder: Path, paths: Sequence[Path]) -> str:
    """What a program says that imports from these paths first; an error calls it by its name."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    ended = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if ended.returncode != 0:
        said = "\n".join(ended.stdout.strip().splitlines()[-15:])
        raise SystemExit(f"{name} failed in {folder}:\n{said}")
    return ended.stdout
