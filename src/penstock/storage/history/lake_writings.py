"""What was written into lakes: each writing of a slice, under an identity that never comes again, and its fate.

    begun ─► verified ─► lost        the database decides which files of a lake count: those of verified writings
      └─────────┴──────► abandoned   whoever loses the duty of archiving cannot verify, and its files are removed
    set_aside                        found in a lake, of a past that this database does not have

Numbers of slices come again after a restore from a backup, and the database then does not know what was archived since.
A lake that lists identities the database has never heard of tells that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, NamedTuple

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = [
    "Sum",
    "Writing",
    "WritingState",
    "add_writing",
    "mark_writings",
    "read_writings",
    "verify_writing",
    "writings_of",
]

WritingState = Literal["begun", "verified", "abandoned", "lost", "set_aside"]


class Sum(NamedTuple):
    """How many jobs, and the checksum over all that is known of them."""

    jobs: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Writing:
    """One writing of a slice: by which duty, into which lake, where that lay then, under which name, what it holds."""

    identity: str
    slice: int
    duty: int
    lake: str
    location: str
    folder: str
    state: WritingState
    jobs: int = 0
    checksum: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def sum(self) -> Sum:
        """What it holds, or is to hold."""
        return Sum(self.jobs, self.checksum)

    def with_content(self, sum_: Sum, files: int = 0, bytes_: int = 0) -> Writing:
        """The same, with what was found in it."""
        return replace(self, jobs=sum_.jobs, checksum=sum_.checksum, files=files, bytes=bytes_)


def read_writings(connection: Connection) -> list[Writing]:
    """All that the database knows of."""
    return [Writing(*row) for row in connection.execute(query("read_writings"))]


def writings_of(connection: Connection, slices: Sequence[int]) -> list[Writing]:
    """Where the rows of slices lie that have left the database; of one that was pruned, nothing."""
    return [Writing(*row) for row in connection.execute(query("writings_of_slices"), {"slices": list(slices)})]


def add_writing(connection: Connection, writing: Writing) -> None:
    """Enter one."""
    connection.execute(query("add_writing"), asdict(writing))


def verify_writing(connection: Connection, writing: Writing) -> bool:
    """Note what it was found to hold; False where it has been abandoned."""
    return connection.execute(query("verify_writing"), asdict(writing)).fetchone() is not None


def mark_writings(connection: Connection, writings: Iterable[Writing], state: WritingState) -> None:
    """Note what became of them."""
    connection.execute(query("mark_writings"), {"identities": [each.identity for each in writings], "state": state})
