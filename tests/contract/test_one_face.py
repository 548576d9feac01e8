"""One database and many look the same to all who use them: outside `penstock.shards` nobody asks how many there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
# What databases are called where there may be several; `shards` are the shards themselves: numbers, entries, URLs.
NAMES = {"databases", "_databases"}


def asks(module: ast.AST) -> Iterator[int]:
    """The lines on which a module asks how many databases there are, or whether one is the only one."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            if any(is_several(each) for each in ast.walk(node)):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "sole":
            yield node.lineno


def is_several(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in NAMES
    return isinstance(node, ast.Name) and node.id in NAMES


def test_outside_of_shards_nobody_asks_how_many_databases_there_are() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "shards"]
    assert len(modules) > 200
    assert [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in modules
        for line in asks(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


def test_such_a_question_is_found() -> None:
    found = asks(
        ast.parse("len(databases)\nlen(self._databases) > 1\nlen(list(app.databases))\napp.databases.sole\nlen(jobs)")
    )
    assert sorted(set(found)) == [1, 2, 3, 4]


def test_databases_are_called_so_wherever_they_are_handed_on() -> None:
    named = [
        (f"{path.relative_to(SOURCE)}:{node.lineno}", node.arg)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation) == "Databases"
    ]
    assert len(named) > 50
    assert [where for where, name in named if name not in {*NAMES, "_"}] == []
