"""The schema: made once, by whoever comes first, and every query fits it."""

from __future__ import annotations

import re

import psycopg
import pytest

from penstock.errors import SchemaMismatch
from penstock.storage import Database
from penstock.storage.migrate import MIGRATIONS, check_schema, migrate, pending
from penstock.storage.queries import QUERIES

_PARAMETER = re.compile(r"%\((\w+)\)s")


def test_every_query_prepares_against_the_migrated_schema(database: Database) -> None:
    refused = {}
    with database.connection() as connection:
        for name, text in QUERIES.items():
            if text.startswith("copy "):
                continue
            numbers: dict[str, int] = {}
            for parameter in _PARAMETER.findall(text):
                numbers.setdefault(parameter, len(numbers) + 1)
            numbered = _PARAMETER.sub(lambda match, numbers=numbers: f"${numbers[match[1]]}", text)  # type: ignore[misc]
            result = connection.pgconn.prepare(name.encode(), numbered.replace("%%", "%").encode())
            if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                refused[name] = result.error_message.decode()
    assert refused == {}


def test_a_second_migration_finds_nothing_to_do(database: Database) -> None:
    with database.connection() as connection:
        assert migrate(connection) == []
        assert pending(connection) == []


def test_an_empty_database_is_refused_and_told_how_to_migrate(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        with pytest.raises(SchemaMismatch, match="penstock migrate"):
            check_schema(connection)
        assert len(migrate(connection)) == len(MIGRATIONS)
        check_schema(connection)


def test_a_migration_applied_in_another_form_is_refused(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("update penstock.migration set checksum = 'x' where number = 1")
        with pytest.raises(SchemaMismatch, match="0001 tables was applied in another form"):
            check_schema(connection)
