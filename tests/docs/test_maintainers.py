"""What the pages for maintainers say of the code is so: its layers, threads, queries, tests and figures."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.conftest import DOCS, ROOT

from penstock.storage.connection.queries import QUERIES

SOURCE = ROOT / "src" / "penstock"
TESTS = ROOT / "tests"
_THREAD_NAME = re.compile(r"penstock-[\w-]+")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# By question, figure, and what that is compared with (None: the figure itself): the pages that tell it, as they do.
_FIGURES = {
    ("cycle", "whole cycles, 1 worker", "raw COPY from dicts"): {
        "README.md": "{:.2f} of raw COPY of the same rows from the same dicts |\n| write-ahead log",
        "docs/explanation/ranges.md": "whole cycles run at {:.2f} of the rate",
        "docs/adr/0001-ranges-not-rows.md": "{:.2f} of raw COPY of the same rows from the same dicts",
        "docs/adr/0009-settle-and-claim-in-one-turn.md": "{:.2f} of the rate of raw COPY",
    },
    ("cycle", "WAL a job, 1 worker", None): {
        "README.md": "{:.0f} bytes",
        "docs/explanation/ranges.md": "{:.0f} bytes of write-ahead log",
        "docs/adr/0001-ranges-not-rows.md": "{:.0f} bytes of write-ahead log",
        "docs/adr/0006-history-is-one-row-per-settled-lease.md": "{:.0f} bytes of write-ahead log",
    },
    ("bulk_enqueue", "WAL a job", None): {
        "docs/adr/0006-history-is-one-row-per-settled-lease.md": "{:.0f} are the enqueue",
    },
    ("spark_load", "load", "2 COPY streams"): {
        "README.md": "{:.2f} of two COPY streams",
        "docs/adr/0015-a-load-is-staged-and-published.md": "{:.2f} of two plain COPY streams",
    },
    ("spark_load", "load", "Spark's JDBC writer"): {
        "README.md": "{:.2f} of Spark's JDBC writer",
        "docs/adr/0015-a-load-is-staged-and-published.md": "{:.2f} of Spark's",
    },
    ("archive", "ps.archive", "Spark reads and writes, unchecked"): {
        "README.md": "{:.2f} of reading and writing them unchecked",
        "docs/adr/0016-history-moves-to-a-lake-by-slices.md": "{:.2f} of Spark reading and writing",
    },
}


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


def _takes_time(tree: ast.Module) -> bool:
    """Whether a module asks the machine for the time by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name == "time" for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("datetime.now", "datetime.utcnow", "date.today"):
            return True
    return False


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


def test_contributing_names_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = _section(page, "How to add an option of a queue") + _section(page, "How to add another option")
    named = set(re.findall(r"`([\w/]+/\w+\.(?:py|sql|md))`", sections))
    assert {"client/checks.py", "cli/shared_options.py"} <= named
    bases = (ROOT, SOURCE)
    assert sorted(name for name in named if not any((base / name).exists() for base in bases)) == []


def test_adr_18_names_every_function_that_runs_as_the_owner() -> None:
    made = re.compile(r"^create (?:or replace )?function @schema@\.(\w+)\(", flags=re.M)
    found = set()
    for file in (SOURCE / "storage" / "schema").rglob("*.sql"):
        _, *parts = made.split(file.read_text(encoding="utf-8"))
        found |= {
            name
            for name, rest in zip(parts[::2], parts[1::2], strict=True)
            if "\nlanguage plpgsql security definer" in rest
        }
    adr = (DOCS / "adr" / "0018-roles-have-rows-and-the-owner-has-tables.md").read_text(encoding="utf-8")
    told = re.search(r"^\*\*(\w+) functions run as the owner\*\*:(.*?)\. They", adr, flags=re.M | re.S)
    assert told is not None
    assert sorted(re.findall(r"`(\w+)`", told[2])) == sorted(found)
    assert told[1].lower() == _NUMBERS[len(found)]


def test_only_the_clock_takes_this_machines_time() -> None:
    code = {file: ast.parse(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py")}
    # The supervisor is run by its path and imports nothing of Penstock.
    assert {str(file.relative_to(SOURCE)) for file, tree in code.items() if _takes_time(tree)} == {
        "clock.py",
        "embedded/supervisor.py",
    }


@pytest.mark.parametrize(("question", "figure", "against"), _FIGURES)
def test_figures_are_those_that_were_measured(question: str, figure: str, against: str | None) -> None:
    measured = json.loads((ROOT / "bench" / "results" / f"{question}.json").read_text(encoding="utf-8"))["figures"]
    (found,) = [each for each in measured if (each["name"], each.get("against")) == (figure, against)]
    value = found["median"] if against is None else found["ratio"]
    for page, sentence in _FIGURES[question, figure, against].items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert sentence.format(value) in text, page
