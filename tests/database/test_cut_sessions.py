"""Sessions that were cut off: who looks what became of them waits until they are gone, or says that they are not."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from datetime import timedelta

import pytest

from penstock.storage import Database
from penstock.storage.connection.flow import session_of
from penstock.storage.connection.sessions import SessionLingers, end_session

IS_THERE = "select from pg_stat_activity where pid = %s"


def test_a_session_that_does_not_end_is_told_and_not_taken_for_gone(database: Database) -> None:
    with closing(database.connect()) as cut_off, database.connection() as connection:
        session = session_of(cut_off)
        assert session is not None
        os.kill(session.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SessionLingers, match=str(session.pid)):
                end_session(connection, database, session, patience=0.2)
        finally:
            os.kill(session.pid, signal.SIGCONT)
        end_session(connection, database, session)
        assert connection.execute(IS_THERE, [session.pid]).fetchone() is None


def test_a_session_that_has_the_number_of_one_that_is_gone_is_left_alone(database: Database) -> None:
    with closing(database.connect()) as other, database.connection() as connection:
        session = session_of(other)
        assert session is not None
        end_session(connection, database, session._replace(started_at=session.started_at - timedelta(seconds=1)))
        assert connection.execute(IS_THERE, [session.pid]).fetchone() is not None
        other.execute("select")
