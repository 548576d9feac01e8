"""The files of a schema, as one value."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise

__all__ = ["AROUND", "OURS", "Schema", "TableFile"]

_TABLE_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_FUNCTION_FILE = re.compile(r"^\d\d_\w+\.sql$")


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of `tables/`."""

    number: int
    name: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.number:04} {self.name}"

    @property
    def checksum(self) -> str:
        return _checksum(self.text)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a program brings: its table files, and its set of functions and views by the names of their files.

    `version` is the set's; `oldest_program` that of the oldest set whose programs still work with this one.

    Table files are in the order of their numbers. Numbers may be left out, but not given twice: a database that has
    one of two files would pass for having both.
    """

    tables: tuple[TableFile, ...]
    functions: dict[str, str]
    version: int
    oldest_program: int

    def __post_init__(self) -> None:
        for file, following in pairwise(self.tables):
            if file.number >= following.number:
                raise ValueError(f"table file {following.title} does not come after {file.title}")

    @classmethod
    def read(cls, folder: Traversable, version: int, oldest_program: int) -> Schema:
        """The schema in a folder with `tables` and `functions`."""
        tables = [
            TableFile(int(match[1]), match[2], file.read_text(encoding="utf-8"))
            for file, match in _named(folder.joinpath("tables"), _TABLE_FILE)
        ]
        functions: dict[str, str] = {}
        for file, _ in _named(folder.joinpath("functions"), _FUNCTION_FILE):
            if file.name in functions:
                raise ValueError(f"two files of functions are named {file.name}")
            functions[file.name] = file.read_text(encoding="utf-8")
        return cls(tuple(sorted(tables, key=lambda file: file.number)), functions, version, oldest_program)

    @property
    def function_text(self) -> str:
        """The set, in the order of its files' names."""
        return "\n".join(self.functions[name] for name in sorted(self.functions))

    @property
    def checksum(self) -> str:
        """The set's."""
        return _checksum(f"{self.version} {self.oldest_program}\n{self.function_text}")


def _named(folder: Traversable, pattern: re.Pattern[str]) -> Iterator[tuple[Traversable, re.Match[str]]]:
    """The files of SQL in a folder and those in it, which all have such a name."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _named(entry, pattern)
        elif match := pattern.match(entry.name):
            yield entry, match
        elif entry.name.endswith(".sql"):
            raise ValueError(f"{entry.name} has no number, and so no place in the order")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Raised with every release that changes a function or a view. The oldest program is raised where a release takes away
# what programs before it use, or gives it another meaning.
OURS = Schema.read(files(__package__), version=1, oldest_program=1)

# What is done before and after the functions, in their transaction.
AROUND = tuple(files(__package__).joinpath("around", f"{name}.sql").read_text("utf-8") for name in ("before", "after"))
