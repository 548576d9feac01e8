"""What the pages for maintainers say of the code is so: its layers, threads, queries and tests."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.docs.conftest import DOCS, ROOT

from penstock.storage.connection.queries import QUERIES

SOURCE = ROOT / "src" / "penstock"
TESTS = ROOT / "tests"
_THREAD_NAME = re.compile(r"penstock-[\w-]+")


def _architecture() -> str:
    return (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")


def _section(page: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, flags=re.M | re.S)
    assert found is not None, heading
    return found[1]


def _first_cells(table: str) -> list[str]:
    """The names in the first column of a section's tables."""
    cells = re.findall(r"^\| ([^|]+) \|", table, flags=re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def _threads(file: Path) -> Iterator[str]:
    """How the names of threads begin that a module starts."""
    code = file.read_text(encoding="utf-8")
    if "Thread(" not in code and "ThreadPoolExecutor(" not in code and "purpose=" not in code:
        return
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _THREAD_NAME.fullmatch(node.value):
            yield node.value
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "purpose"
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield f"penstock-{node.value.value}"


def test_the_layers_of_the_architecture_are_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [set(re.findall(r"\w+", layer)) for layer in contracts["contracts"][0]["layers"]]
    drawing = re.search(r"^```text$(.*?)^```$", _section(_architecture(), "The layers"), flags=re.M | re.S)
    assert drawing is not None
    drawn = [set(re.findall(r"\w+", re.split(r"\s{2,}", line)[0])) for line in drawing[1].strip().splitlines()]
    assert drawn == layers


def test_every_thread_is_in_the_architecture() -> None:
    table = _first_cells(_section(_architecture(), "What runs in which thread"))
    told = [name for name in table if _THREAD_NAME.match(name)]
    started = {name for file in SOURCE.rglob("*.py") for name in _threads(file)}
    assert len(started) > 10
    assert sorted(name for name in started if not any(each.startswith(name) for each in told)) == []
    assert sorted(name for name in told if not any(name.startswith(each) for each in started)) == []


def test_every_query_has_its_sentence() -> None:
    files = [file for file in SOURCE.rglob("*.sql") if not {"tables", "functions", "around"} & set(file.parts)]
    queries = [text for file in files for text in file.read_text(encoding="utf-8").split("-- name: ")[1:]]
    assert len(queries) > 100
    assert [text.splitlines()[0] for text in queries if not text.splitlines()[1].startswith("-- ")] == []


def test_every_folder_of_tests_and_every_helper_is_listed() -> None:
    section = _section((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "Tests")
    folders, helpers = section.split("### ")
    assert sorted(_first_cells(folders)) == sorted(
        folder.name for folder in TESTS.iterdir() if folder.is_dir() and any(folder.glob("*.py"))
    )
    modules = {
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if not file.name.startswith(("test_", "__")) and not (file.name == "conftest.py" and file.parent != TESTS)
    }
    assert sorted(_first_cells(helpers)) == sorted(modules)


def test_every_query_is_named_in_the_code_as_it_is_called() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    assert sorted(name for name in QUERIES if f'"{name}"' not in code) == []


def test_every_package_has_a_map_of_its_modules() -> None:
    missing = []
    for package in SOURCE.rglob("__init__.py"):
        told = set(re.findall(r"\w+", ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""))
        parts = [each for each in package.parent.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
        names = {each.stem for each in parts if not each.stem.startswith("__")}
        if package.parent != SOURCE:
            missing += [f"{package.parent.relative_to(SOURCE)}: {name}" for name in sorted(names - told)]
    assert missing == []
