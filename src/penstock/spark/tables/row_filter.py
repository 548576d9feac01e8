"""Which rows are read: by queue, task, outcome or state, key, and a span of time. PostgreSQL and the lake look at it.

Spark can hand a data source the filters of a query (`pushFilters`), and that is not used: up to 4.3 it keeps those of
one query for the next over the same DataFrame, and one branch's for the other in a union or join. Rows are missing
then, and nothing says so. What is asked for by name, before Spark plans anything, cannot be mixed up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.checks import key_from_bytes, key_to_bytes
from penstock.model.job_state import State
from penstock.storage.history.bulk import Table
from penstock.storage.history.conditions import Condition

__all__ = ["KEY_HEX", "RowFilter", "read_instant"]

# The option that holds a key which is no text, as hex digits.
KEY_HEX = "key_hex"
# The time of a row that `since` and `until` look at.
_TIMES: dict[Table, str] = {"finished": "finished_at", "jobs": "enqueued_at", "failures": "at"}
_COLUMNS: dict[Table, tuple[str, ...]] = {
    "finished": ("queue", "task", "outcome", "key"),
    "jobs": ("queue", "task", "state", "key"),
    "failures": (),
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows with these values; None is any. `since` is included, `until` is not."""

    queue: str | None = None
    task: str | None = None
    outcome: str | None = None
    state: str | None = None
    # `__post_init__` makes it text where it is UTF-8, else bytes.
    key: str | bytes | int | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def from_options(cls, table: Table, options: Mapping[str, str]) -> RowFilter:
        """What a reader's options ask for."""
        for name in ("queue", "task", "outcome", "state", "key"):
            if name in options and name not in _COLUMNS[table]:
                raise InvalidInput(name, f"table {table!r} cannot be chosen from by {name}")
        names: dict[str, Any] = {name: options[name] for name in _COLUMNS[table] if name in options}
        if KEY_HEX in options:
            names["key"] = bytes.fromhex(options[KEY_HEX])
        return cls(
            **names,
            since=read_instant("since", options.get("since")),
            until=read_instant("until", options.get("until")),
        )

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "key", key_from_bytes(key_to_bytes(self.key)))
        for name in ("queue", "task", "outcome", "state"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidInput(name, f"text is needed, not {type(value).__name__}")
        for name in ("queue", "task", "key"):
            if (value := getattr(self, name)) is not None and "\0" in str(value):
                raise InvalidInput(name, "a text with a NUL character names nothing")
        for name, value in (("outcome", self.outcome), ("state", self.state)):
            if value is not None and value not in {*State}:
                raise InvalidInput(name, f"{value!r:.200} is none of {', '.join(State)}")

    def options(self) -> dict[str, str]:
        """The same as a reader's options."""
        times = {name: value.isoformat() for name in ("since", "until") if (value := getattr(self, name)) is not None}
        named = {name: getattr(self, name) for name in ("queue", "task", "outcome", "state", "key")}
        if isinstance(self.key, bytes):
            named |= {"key": None, KEY_HEX: self.key.hex()}
        return {name: value for name, value in named.items() if value is not None} | times

    def conditions(self, table: Table) -> list[Condition]:
        """What PostgreSQL is asked."""
        found = [
            Condition(name, "=", key_to_bytes(value) if name == "key" else value)
            for name in _COLUMNS[table]
            if (value := getattr(self, name)) is not None
        ]
        time = _TIMES[table]
        if self.since is not None:
            found.append(Condition(time, ">=", self.since))
            if table == "finished":
                found.append(Condition("settled_at", ">=", self.since))
        if self.until is not None:
            found.append(Condition(time, "<", self.until))
        return found


def read_instant(field: str, value: object) -> datetime | None:
    """An instant: a time with its zone, as an object or in ISO 8601, or a day, which begins at midnight in UTC."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value) if len(value) > 10 else date.fromisoformat(value)
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise InvalidInput(
                    field, "a time needs its zone: write 2026-11-05T12:00:00Z, or datetime(..., tzinfo=UTC)"
                )
            return value.astimezone(UTC)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(field, f"{value!r:.200} is no time; write 2026-11-05 or 2026-11-05T12:00:00Z")
