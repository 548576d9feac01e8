"""Texts of SQL are in files, and a query is sent by nobody below the package it lies in."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.storage.connection.queries import QUERIES

SOURCE = Path(penstock.__file__).parent
ROOT = SOURCE.parents[1]
# What else may hold a text of SQL: conditions that Spark's filters decide; files that make a schema, put together. And
# what is said to Spark, of a lake.
_COMPOSERS = {
    "storage/connection/queries.py",
    "storage/history/conditions.py",
    "storage/schema/steps.py",
    "spark/lake/table_lake.py",
}
_SENDERS = {"execute", "executemany", "copy", "send_query", "SQL"}
_SQL = re.compile(
    r"(select( .*)?|with \w+ as .*|insert into .*|update [\w.]+ set .*|delete from .*|lock table .*|(un)?listen .*"
    r"|(alter|create|drop|truncate) (table|index|function|schema) .*)",
    flags=re.S,
)


def _sql_in(code: str) -> Iterator[int]:
    """The lines on which a module has a text of SQL: what it sends as a text, and what else is a whole statement."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            sent = node.args[0]
            if isinstance(sent, ast.BinOp):
                sent = sent.left
            is_text = isinstance(sent, ast.JoinedStr) or (
                isinstance(sent, ast.Constant) and isinstance(sent.value, str | bytes) and sent.value not in ("", ", ")
            )
            if node.func.attr in _SENDERS and is_text:
                yield node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if " " in text and _SQL.fullmatch(text.strip()):
                yield node.lineno


def test_sql_is_in_files() -> None:
    found = {
        f"{file.relative_to(SOURCE)}:{line}"
        for file in SOURCE.rglob("*.py")
        if str(file.relative_to(SOURCE)) not in _COMPOSERS
        for line in _sql_in(file.read_text(encoding="utf-8"))
    }
    assert sorted(found) == []


def test_sql_that_is_not_in_a_file_is_found() -> None:
    code = """
connection.execute("select now()")
cursor.execute(f"lock table {table}", prepare=False)
connection.execute("update " + table)
COMMIT = b"select pg_logical_emit_message(true, 'penstock', '')"
text = sql.SQL("listen {}").format(channel)
connection.execute(query("begin"), {"select": "update"})
log.info("cannot select a job, or update it")
names = sql.SQL(", ").join(columns)
"""
    assert sorted(set(_sql_in(code))) == [2, 3, 4, 5, 6]


def test_a_query_is_sent_by_its_own_package_or_by_those_above_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [re.findall(r"\w+", layer) for layer in reversed(contracts["contracts"][0]["layers"])]
    heights = {package: height for height, layer in enumerate(layers) for package in layer}

    def height_of(file: Path) -> tuple[int, bool]:
        """The layer; within storage, `connection` lies below the other rooms."""
        return heights[file.parts[0]], file.parts[:2] != ("storage", "connection")

    homes = {
        name: file.relative_to(SOURCE)
        for file in SOURCE.rglob("*.sql")
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), flags=re.M)
    }
    assert homes.keys() == QUERIES.keys()
    upward = []
    for file in SOURCE.rglob("*.py"):
        module = file.relative_to(SOURCE)
        # What lies below storage sends nothing, and means functions by such names.
        if len(module.parts) > 1 and heights[module.parts[0]] >= heights["storage"]:
            names = _query_names(ast.parse(file.read_text(encoding="utf-8"))) & homes.keys()
            upward += [f"{module}: {name}" for name in names if height_of(homes[name]) > height_of(module)]
    assert sorted(upward) == []


def _query_names(module: ast.AST) -> set[str]:
    """Texts of a module that may name a query: what is handed to a call, yielded as a step, or looked up."""
    places: list[ast.AST] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            places += node.args
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            places += node.value.elts[:1]
        elif isinstance(node, ast.Dict):
            places += node.values
        elif isinstance(node, ast.IfExp):
            places += [node.body, node.orelse]
    return {each.value for each in places if isinstance(each, ast.Constant) and isinstance(each.value, str)}
