"""G2, G3, G12, G13: the timeouts of a role end statements, transactions and sessions of ours; nobody dies of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from tests.fault.stage import MakeStage, Stage, eventually, times
from tests.fault.tally import brought


@contextmanager
def timeout(stage: Stage, setting: str, value: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Sessions that begin from now on have this timeout, and those there are end; until the end of the block."""
    with psycopg.connect(stage.url, autocommit=True) as connection:
        if setting == "transaction_timeout" and connection.info.server_version < 170_000:
            pytest.skip("this PostgreSQL has none")
        # Not of this session itself.
        database = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("alter database {} set {} = {}").format(database, sql.Identifier(setting), sql.Literal(value))
        )
        end_sessions(connection)
        try:
            yield connection
        finally:
            connection.execute(sql.SQL("alter database {} reset all").format(database))
            end_sessions(connection)


def met(connection: psycopg.Connection[tuple[object, ...]], setting: str) -> int:
    """How many sessions ended by a fatal error, or transactions by any."""
    counts = "select sessions_fatal, xact_rollback from pg_stat_database where datname = current_database()"
    fatal, rolled_back = connection.execute(counts).fetchall()[0]
    count = rolled_back if setting in ("statement_timeout", "lock_timeout") else fatal
    assert isinstance(count, int)
    return count


def end_sessions(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'penstock%'"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("statement_timeout", "30ms"),
        ("lock_timeout", "10ms"),
        ("idle_in_transaction_session_timeout", "10ms"),
        ("transaction_timeout", "30ms"),
        ("idle_session_timeout", "100ms"),
    ],
    ids=lambda each: each if "_" in each else "",
)
def test_g2_g3_g13_workers_and_producers_live_through_a_roles_timeouts(
    make_stage: MakeStage, database_url: str, setting: str, value: str
) -> None:
    stage = make_stage(database_url, ordered=2, limit=3)
    crew = [stage.worker(work_seconds=0.005), stage.worker(work_seconds=0.005)]
    eventually(lambda: stage.enqueue("plain", 3) and stage.settles(), "the workers are at work")
    with timeout(stage, setting, value) as connection:
        before = met(connection, setting)
        with stage.producing(), stage.producing_steps("ordered"):
            for _ in range(times(20, 60)):
                # Now and then somebody is in everybody's way.
                with psycopg.connect(stage.url, options=f"-c {setting}=0") as holder:
                    holder.execute("select * from penstock.partition for update")
                    stage.breathe()
        assert [each.poll() for each in crew] == [None, None]
        eventually(lambda: met(connection, setting) > before, "somebody met the timeout")
        brought("role's timeout met")
    stage.verdict().require("a settle")
