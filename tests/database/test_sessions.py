"""What sessions of Penstock's own are set to, whatever the database or the role says."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from penstock.admin.doctor import doctor
from penstock.storage import Database


@pytest.fixture
def jit_url(database_url: str) -> str:
    """A database whose sessions compile what looks expensive, as PostgreSQL's do by default."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("alter database {} set jit = on").format(sql.Identifier(connection.info.dbname)))
    return database_url


def test_sessions_compile_nothing(jit_url: str) -> None:
    database = Database(jit_url)
    try:
        with database.connect() as lasting, database.connection() as pooled:
            assert {each.execute("show jit").fetchone() for each in (lasting, pooled)} == {("off",)}
    finally:
        database.close()


def test_the_doctor_tells_where_a_pooler_keeps_sessions_from_being_set(jit_url: str) -> None:
    database = Database(jit_url)
    try:
        assert [check.ok for check in doctor([database]) if check.name == "jit"] == [True]
        database.is_pooled = True
        found = [check for check in doctor([database]) if check.name == "jit"]
        assert [check.ok for check in found] == [False]
        assert "set jit = off" in found[0].advice
    finally:
        database.close()
