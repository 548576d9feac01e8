"""Which job a record of the log is about, and the forms in which records are written.

Records of the logger `penstock` that are about one job have its id, queue, task and attempt as attributes. Those of
an application's own loggers get them from a `JobFilter` where they are made within a handler. Nothing here touches
how an application has set up its logging: only the command line calls `write_log`, and only where nobody else has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock.visible import as_json_text, visible

__all__ = ["LEVELS", "JobFilter", "JsonFormatter", "LogSetting", "current_job", "log_about", "log_setting", "write_log"]

log = logging.getLogger("penstock")

LEVELS = ("debug", "info", "warning", "error")
FIELDS = ("job_id", "queue", "task", "attempt")
Fields = Mapping[str, Any]
# What every record has; the rest was given with `extra`.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class CurrentJob:
    """The job whose handler runs here, in this thread or task. It is noted only once somebody wants it for records."""

    def __init__(self) -> None:
        self.is_wanted = False
        # Gives the fields of the job, or None once it has ended.
        self._variable: ContextVar[Callable[[], Fields | None]] = ContextVar("penstock_job")

    def note(self, fields: Callable[[], Fields | None]) -> None:
        """From now on this is the job."""
        self._variable.set(fields)

    def fields(self) -> Fields:
        """What is known of it; empty outside of a handler."""
        find = self._variable.get(None)
        return (None if find is None else find()) or {}


current_job = CurrentJob()


class JobFilter(logging.Filter):
    """Gives every record that passes a handler `job_id`, `queue`, `task` and `attempt`: those of the job whose handler
    made it, None outside of one.
    """

    def __init__(self) -> None:
        super().__init__()
        current_job.is_wanted = True

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it pass, with its fields."""
        # A record that says itself which job it is about is not about the one that runs.
        fields = {} if hasattr(record, "job_id") else current_job.fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name))
        return True


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `time`, `level`, `logger`, `message`, the fields of its job where there is one,
    what was given with `extra`, which replaces none of the first four, and the `exception`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._filter = JobFilter()

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        self._filter.filter(record)
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = {name: value for name, value in vars(record).items() if name not in _USUAL and name not in entry}
        entry |= {name: value for name, value in given.items() if name not in FIELDS or value is not None}
        if entry.get("job_id") is not None:
            # As everywhere in JSON: ids pass what JavaScript's numbers hold.
            entry["job_id"] = str(entry["job_id"])
        if record.exc_info:
            entry["exception"] = record.exc_text or self.formatException(record.exc_info)
        try:
            return as_json_text(msgspec.json.encode(entry, enc_hook=str))
        except Exception:  # What was given with `extra` may be anything.
            return as_json_text(msgspec.json.encode({name: _as_text(value) for name, value in entry.items()}))


class _Lines(logging.Formatter):
    """What other loggers say may quote a handler's error, too: none of it reaches the terminal as a command."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._filter = JobFilter()

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.name != log.name:
            # Penstock's own say it themselves.
            self._filter.filter(record)
            if record.job_id is not None:  # type: ignore[attr-defined]
                about = f"[job {record.job_id} {record.queue}/{record.task}] "  # type: ignore[attr-defined]
                message = record.getMessage()
                text = text.replace(message, about + message, 1)
        return visible(text, keeps_lines=True)


class LogSetting(NamedTuple):
    """What the command line was told about the log."""

    level: str = "info"
    as_json: bool = False


# Set where this process writes the log: processes of handlers do as it does.
_written: list[LogSetting] = []


def log_setting() -> LogSetting | None:
    """How the log is written here; None where the application does it."""
    return _written[-1] if _written else None


def write_log(setting: LogSetting) -> bool:
    """Write the log to standard error, for a program whose log nobody writes; False where an application does."""
    root = logging.getLogger()
    if root.handlers or log.handlers:
        return False
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if setting.as_json else _Lines())
    root.addHandler(handler)
    root.setLevel(setting.level.upper())
    _written.append(setting)
    return True


def log_about(fields: Fields, level: int, message: str, *values: object, exc_info: bool = False) -> None:
    """Log something about a job."""
    try:
        log.log(level, message, *values, exc_info=exc_info, extra=fields, stacklevel=2)
    except KeyError:  # An application's own record factory sets an attribute of that name, which counts then.
        log.log(level, message, *values, exc_info=exc_info, stacklevel=2)


def _as_text(value: object) -> str:
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()
