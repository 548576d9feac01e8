"""The ledger of a long run: a line of JSON for each round that is over, and for each time the run was begun.

It lies in `.fault/` under the commit it is about, so that a run that was stopped goes on where it was, and one of
another commit begins anew. Beside it lie the folders of the rounds that failed, named by their seeds.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
from tests.fault.tally import FAULTS

__all__ = ["Ledger", "Round", "commit_of_here"]

ROOT = Path(__file__).parents[2]


class Round(msgspec.Struct, tag="round"):
    """One round. `found` is empty unless it failed; `at` is when it was over."""

    test: str
    seed: int
    seconds: float
    faults: dict[str, int] = {}
    sometimes: dict[str, int] = {}
    found: str = ""
    at: float = 0.0


class Begun(msgspec.Struct, tag="begun"):
    """The run was begun or taken up again."""

    seed: int
    at: float
    processes: int


class Ledger:
    """Appended to by one process."""

    def __init__(self, folder: Path, seed: int | None, processes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = folder / "rounds.jsonl"
        self._path.touch()
        # Of a line that was being written when the run was killed only a part may be there.
        whole, newline, torn = self._path.read_bytes().rpartition(b"\n")
        if torn:
            self._path.write_bytes(whole + newline)
        lines = whole.splitlines()
        self._entries: list[Round | Begun] = [msgspec.json.decode(line, type=Round | Begun) for line in lines]
        self.rounds = [entry for entry in self._entries if isinstance(entry, Round)]
        self.is_resumed = bool(self.rounds)
        first = next((entry for entry in self._entries if isinstance(entry, Begun)), None)
        given = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.seed = given if first is None else first.seed
        self._append(begun := Begun(self.seed, time.time(), processes))
        self.first_at = (first or begun).at

    @property
    def seconds(self) -> float:
        """How long the run has taken, over all its parts: each from its beginning to the end of its last round."""
        seconds = began = last = 0.0
        for entry in self._entries:
            if isinstance(entry, Begun):
                seconds += last - began
                began = entry.at
            last = entry.at
        return seconds + last - began

    def add(self, entry: Round) -> None:
        entry.at = time.time()
        self.rounds.append(entry)
        self._append(entry)

    def seed_of(self, test: str, number: int) -> int:
        """The seed of the how manieth round of a test: it follows from the run's."""
        return random.Random(f"{self.seed}/{test}/{number}").getrandbits(32)

    def counts(self) -> Counter[str]:
        """How often each fault was brought about."""
        return sum((Counter(each.faults) for each in self.rounds), Counter())

    def sometimes(self) -> Counter[str]:
        return sum((Counter(each.sometimes) for each in self.rounds), Counter())

    def by_test(self) -> dict[str, list[Round]]:
        found: dict[str, list[Round]] = defaultdict(list)
        for each in self.rounds:
            found[each.test].append(each)
        return found

    def missing(self) -> dict[str, int]:
        """What is still to be done."""
        counts = self.counts()
        return {fault: asked - counts[fault] for fault, asked in FAULTS.items() if counts[fault] < asked}

    def _append(self, entry: Round | Begun) -> None:
        self._entries.append(entry)
        with self._path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(entry) + b"\n")


def commit_of_here() -> str:
    """The commit that is tested; with a + where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    if not git("rev-parse", "HEAD"):
        return "unknown"
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", "src", "tests") else "")
