"""Tables made ahead: whoever writes a job or ends one always finds its table there.

Each is created on its own and then attached, which reads and writes of the others do not notice. Tables of jobs grow
with the load, so that about eight of them cover the time jobs are kept, and a reader never has many to look into.
"""

from __future__ import annotations

from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["make_ahead", "rotate_slice", "use_daily_slice"]

TABLES_AHEAD = 3
SLICES_AHEAD = 3
_TABLES_OF_THE_TIME_KEPT = 8
_MANY_TABLES = 14
_FEWEST_CALLS = 65_536
_STEP = 1_024


def make_ahead(connection: Connection, kept_days: float = 30.0) -> None:
    """Make tables of jobs and slices, so that three of each lie ahead. Raises LockNotAvailable where one is held."""
    # At most three a call, not until three lie ahead: beyond the last range number there is no table to make.
    for _ in range(TABLES_AHEAD):
        row = connection.execute(query("read_room")).fetchone()
        assert row is not None  # noqa: S101
        newest, ahead, attached, width = row
        if ahead >= TABLES_AHEAD:
            break
        calls = _calls(connection, newest, width // _STEP, attached, kept_days)
        with connection.transaction():
            connection.execute(query("be_impatient"))
            connection.execute(query("add_job_table"), {"calls": calls})
    _add_slices(connection)


def use_daily_slice(connection: Connection) -> None:
    """Use a new slice of history where the one in use is of an earlier day, by the database's clock."""
    row = connection.execute(query("read_slices")).fetchone()
    if row is not None and row[1]:
        rotate_slice(connection)


def rotate_slice(connection: Connection) -> int:
    """Use a new slice from now on; its number. What ends from now on is written there."""
    _add_slices(connection, 1)
    row = connection.execute(query("use_next_slice")).fetchone()
    assert row is not None  # noqa: S101
    _add_slices(connection)
    return int(row[0])


def _add_slices(connection: Connection, wanted: int = SLICES_AHEAD) -> None:
    while True:
        row = connection.execute(query("read_slices")).fetchone()
        if row is None or row[0] >= wanted:
            return
        with connection.transaction():
            connection.execute(query("be_impatient"))
            connection.execute(query("add_slice"))


def _calls(connection: Connection, newest: int, last_calls: int, attached: int, kept_days: float) -> int:
    """How many calls the next table holds: by the rate of late, at most twice as many as the last."""
    if attached >= _MANY_TABLES:
        return last_calls * 2
    row = connection.execute(query("oldest_job")).fetchone()
    if row is None or row[1] <= 0:
        return max(_FEWEST_CALLS, last_calls)
    calls_a_second = (newest - row[0] // _STEP) / _STEP / row[1]
    wanted = int(calls_a_second * kept_days * 86_400 / _TABLES_OF_THE_TIME_KEPT)
    return max(_FEWEST_CALLS, min(wanted, last_calls * 2))
