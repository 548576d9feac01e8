"""The manual is whole: its links lead somewhere, and everything public is told in it."""

from __future__ import annotations

import importlib.util
import inspect
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

import psycopg
import pytest
import typer
from tests.docs.conftest import DOCS, PAGES, ROOT, blocks

import penstock
from penstock import errors
from penstock.cli.program import program
from penstock.server.operations import OPERATIONS

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SHELL_COMMAND = re.compile(r"(?:^|`|\s)penstock ([a-z][a-z-]*)")


@cache
def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def _anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands() -> set[str]:
    return set(typer.main.get_command(program).commands)  # type: ignore[attr-defined]


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in _LINK.findall(_prose(page)):
            if target.startswith(("https://", "http://")):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            is_found = file.exists() and (not anchor or anchor in _anchors(file))
            if not is_found:
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_picture_is_on_a_page() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in _LINK.findall(_prose(page))}
    assert set((DOCS / "pictures").iterdir()) - shown == set()


def test_every_page_is_in_the_index() -> None:
    listed = {(DOCS / target.partition("#")[0]).resolve() for target in _LINK.findall(_prose(DOCS / "index.md"))}
    adrs = set((DOCS / "adr").glob("*.md"))
    missing = [page.name for page in DOCS.rglob("*.md") if page not in listed | adrs | {DOCS / "index.md"}]
    assert missing == []


@pytest.mark.parametrize("name", ["api.md", "cli.md", "http.md", "metrics.md", "key-hash.md"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == _generator().PAGES[name](), f"run: python docs/generate.py ({name} is not up to date)"


def test_every_operation_of_the_http_api_is_in_the_reference() -> None:
    headings = re.findall(
        r"^### ([A-Z]+) /(\S+)$", (DOCS / "reference" / "http.md").read_text(encoding="utf-8"), flags=re.M
    )
    assert sorted(headings) == sorted((each.method, each.path.strip("/")) for each in OPERATIONS)


def test_every_public_name_is_in_the_reference() -> None:
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    entries = set(re.findall(r"^### (\w+)$|^- `(\w+)`: |^`penstock\.(\w+)` ", reference, flags=re.M))
    assert set(penstock.__all__) - {name for entry in entries for name in entry} == set()


def test_every_error_is_told_with_what_to_do() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    missing = [name for name in errors.__all__ if f"| `{name}`" not in page]
    assert missing == []


def test_every_option_is_explained() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    functions: list[Callable[..., Any]] = [
        penstock.App.__init__,
        penstock.App.queue,
        penstock.App.cron,
        penstock.App.work,
        penstock.Task.options,
        *get_overloads(penstock.Queue.task)[-1:],
    ]
    names = {name for function in functions for name in inspect.signature(function).parameters}
    names -= {"self", "unavailable", "expression", "args", "timezone", "task"}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_every_command_that_is_mentioned_exists() -> None:
    mentioned = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        mentioned |= {name for span in re.findall(r"`([^`\n]+)`", text) for name in _SHELL_COMMAND.findall(span)}
        mentioned |= {name for b in blocks(page) if b.language == "sh" for name in _SHELL_COMMAND.findall(b.text)}
    assert mentioned - _commands() == set()


def test_the_sql_function_is_documented_as_it_is(database_url: str) -> None:
    page = (DOCS / "reference" / "sql.md").read_text(encoding="utf-8")
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select proargnames from pg_proc where oid = 'penstock.enqueue'::regproc").fetchone()
    assert row is not None
    names = row[0]
    signature = next(block.text for block in blocks(DOCS / "reference" / "sql.md") if "penstock.enqueue(" in block.text)
    assert (
        re.findall(
            r"(\w+)\"? (?:text|jsonb|bytea|int|timestamptz|double precision|bigint)\b", signature.split(") returns")[0]
        )
        == names
    )
    # A name that SQL has for itself is quoted.
    assert [name for name in names if f"`{name}`" not in page and f'`"{name}"`' not in page] == []


def test_the_sql_of_the_reference_runs(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name in ("sql.md", "key-hash.md"):
            for block in blocks(DOCS / "reference" / name):
                if block.language == "sql" and block.text.startswith("select"):
                    connection.execute(block.text.encode())


def test_the_columns_of_the_reference_exist(database_url: str) -> None:
    told = {
        "finished_job": "job_id partition_id outcome attempt started_at finished_at worker result error slice",
        "job_stored": "id enqueued_at partition_id priority task key args attributes",
        "dead": "job_id partition_id task attempt started_at failed_at worker error",
        "failure": "job_id attempt at worker error",
        "queue_stats": "queue is_paused partitions waiting running scheduled blocked dead oldest_wait_seconds"
        " running_limit max_length in_per_second out_per_second total_enqueued total_completed total_failed",
        "partition_stats": "partition partition_id shard state owner total_cancelled total_discarded total_expired",
        "stats_history": "minute queue partition shard enqueued completed failed cancelled discarded expired seconds",
    }
    page = (DOCS / "reference" / "sql.md").read_text(encoding="utf-8")
    with psycopg.connect(database_url) as connection:
        for table, columns in told.items():
            rows = connection.execute(
                "select attname from pg_attribute where attrelid = %s::regclass", [f"penstock.{table}"]
            ).fetchall()
            assert set(columns.split()) <= {row[0] for row in rows}, table
            assert [column for column in columns.split() if f"`{column}`" not in page] == []


def test_every_table_is_in_the_architecture(database_url: str) -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "select relname from pg_class where relnamespace = 'penstock'::regnamespace"
            " and relkind in ('r', 'p') and not relispartition"
        ).fetchall()
    assert sorted(name for (name,) in rows if f"`{name}`" not in page) == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    files = sorted(file.name for file in (DOCS / "adr").glob("[0-9]*.md"))
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    listed = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    for name in files:
        text = (DOCS / "adr" / name).read_text(encoding="utf-8")
        assert name in listed
        assert text.startswith(f"# {int(name[:4])}. ")
        assert "Status: " in text
        assert [part for part in ("## Context", "## Decision", "## Consequences") if part not in text] == []


def test_the_pages_for_maintainers_name_files_that_exist() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "penstock"
    named = set(re.findall(r"`([a-z_]+/[\w/]+\.(?:py|sql))`", page))
    assert named
    missing = [name for name in named if not (source / name).exists() and not (source / "storage" / name).exists()]
    assert missing == []


def test_every_promise_that_a_test_carries_is_explained() -> None:
    page = (DOCS / "explanation" / "guarantees.md").read_text(encoding="utf-8")
    named = re.compile(r"^def test_((?:g\d+_)+)", flags=re.M)
    numbers = {
        number
        for file in (ROOT / "tests").rglob("test_*.py")
        for carried in named.findall(file.read_text(encoding="utf-8"))
        for number in re.findall(r"g\d+", carried)
    }
    assert sorted(number for number in numbers if f"## {number.upper()}: " not in page) == []


def test_whatever_says_how_to_install_names_the_package_on_the_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "penstock-queue"
    texts = [*PAGES, *(ROOT / "src").rglob("*.py")]
    installed = [
        words
        for file in texts
        for words in re.findall(r"pip install (?:--upgrade )?'?(penstock[\w-]*(?:\[\w+\])?)", file.read_text("utf-8"))
    ]
    assert len(installed) > 5
    assert set(installed) == {
        "penstock-queue",
        "penstock-queue[serve]",
        "penstock-queue[spark]",
        "penstock-queue[trace]",
    }


def test_every_word_of_the_states_is_in_the_glossary() -> None:
    page = (DOCS / "explanation" / "glossary.md").read_text(encoding="utf-8")
    assert [state.value for state in penstock.State if f"`{state.value}`" not in page] == []
