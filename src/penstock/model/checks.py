"""The bounds of everything a user may hand in, and the checks that keep them.

Each `checked_…` returns the value in the form that is stored, or raises `InvalidInput` that names the field, the
limit and the remedy. Whatever passes here can be stored in PostgreSQL and comes back equal.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import InvalidInput

__all__ = [
    "ARGS_BYTES",
    "DEFAULT_PRIORITY",
    "ERROR_CHARACTERS",
    "HIGHEST_ID",
    "IDEMPOTENCY_KEY_BYTES",
    "JOBS_A_CALL",
    "KEY_BYTES",
    "LONGEST_DELAY_SECONDS",
    "MOST_ATTEMPTS",
    "MOST_CONCURRENCY",
    "MOST_PARENTS",
    "MOST_PARTITIONS",
    "MOST_RUNNING",
    "MOST_SHARDS",
    "MOST_TAGS",
    "MOST_WEIGHTS",
    "NAME_CHARACTERS",
    "checked_attempts",
    "checked_choice",
    "checked_concurrency",
    "checked_count",
    "checked_days",
    "checked_delay",
    "checked_entry_id",
    "checked_idempotency_key",
    "checked_job_id",
    "checked_name",
    "checked_priority",
    "checked_progress",
    "checked_run_at",
    "checked_seconds",
    "checked_tags",
    "checked_unique_key",
    "checked_weights",
    "key_from_bytes",
    "key_to_bytes",
    "shown",
    "storable_text",
]

NAME_CHARACTERS = 200
# Whoever writes a URL with one of these leaves it out: nothing that is called so could be reached over HTTP.
NO_NAMES = (".", "..")
KEY_BYTES = 512
IDEMPOTENCY_KEY_BYTES = 512
# What is kept beside idempotency keys and is none that a user chose begins so: what unique jobs have in common, and
# keys in a space of their own.
RESERVED_PREFIX = "penstock."
UNIQUE_PREFIX = f"{RESERVED_PREFIX}unique:"
ARGS_BYTES = 256 * 1024
JOBS_A_CALL = 10_000
HIGHEST_ID = 2**63 - 1
MOST_ATTEMPTS = 32_767
MOST_CONCURRENCY = 1_000
MOST_PARTITIONS = 1_024
# The number of a shard has ten bits of each id.
MOST_SHARDS = 1_023
MOST_RUNNING = 2**31 - 1
MOST_TAGS = 32
MOST_PARENTS = 1_000
MOST_WEIGHTS = 1_000
ERROR_CHARACTERS = 10_000
MOST_COUNT = 2**53 - 1
LONGEST_DELAY_DAYS = 10 * 366
LONGEST_DELAY_SECONDS = LONGEST_DELAY_DAYS * 86_400
DEFAULT_PRIORITY = 5
LOWEST_PRIORITY = 9

# Python's dates end with the year 9999; a margin keeps every later time zone arithmetic inside them.
_LATEST_RUN_AT = datetime(9999, 1, 1, tzinfo=UTC)
_EARLIEST_RUN_AT = datetime(1900, 1, 1, tzinfo=UTC)


def shown(value: object) -> str:
    """The value as it may stand in a message: short, whatever it is."""
    try:
        text = ascii(value)
    except Exception:  # A value's own repr may raise anything, and the message matters more than the value.
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _checked_text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, f"text is needed, not {type(value).__name__} {shown(value)}; pass a str")
    if "\0" in value:
        raise InvalidInput(field, f"{shown(value)} holds a NUL character, which PostgreSQL cannot store; remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            field, f"{shown(value)} holds half of a surrogate pair, which is not text; remove it"
        ) from None
    return value


def checked_name(field: str, value: object) -> str:
    """The name of a queue, task, tag, tenant, creator, cron or load."""
    text = _checked_text(field, value)
    if not text or text.isspace():
        raise InvalidInput(field, f"{shown(text)} is blank; give 1 to {NAME_CHARACTERS} characters")
    if len(text) > NAME_CHARACTERS:
        raise InvalidInput(field, f"{len(text)} characters is too long; give at most {NAME_CHARACTERS}")
    if text in NO_NAMES:
        raise InvalidInput(field, f"{shown(text)} is a step in the path of a URL, never a name; give another")
    return text


def checked_progress(value: object, note: object) -> tuple[float | None, str | None]:
    """How far a job has come, as precise as it is stored, and words about it, which are replaced and never refused."""
    number: float | None = None
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput("progress", f"a number is needed, not {type(value).__name__}")
        try:
            (number,) = struct.unpack("<f", struct.pack("<f", value))
        except (OverflowError, struct.error):
            number = math.inf
        if number is None or not math.isfinite(number):
            raise InvalidInput("progress", "a number of usual size is needed, e.g. 0.5")
    return number, None if note is None else storable_text(str(note), NAME_CHARACTERS)


def storable_text(text: str, most_characters: int = ERROR_CHARACTERS) -> str:
    """Text that nobody chose, such as that of a handler's exception, made fit to be stored: replaced, never refused."""
    if len(text) > most_characters:
        text = f"{text[: most_characters - 3]}..."
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def checked_tags(value: object) -> list[str]:
    """A job's tags, each a name, without repeats."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidInput("tags", f"a list of names is needed, not {type(value).__name__}; write tags=[...]")
    tags = list(dict.fromkeys(checked_name("tags", tag) for tag in value))
    if len(tags) > MOST_TAGS:
        raise InvalidInput("tags", f"{len(tags)} tags are too many; give at most {MOST_TAGS}")
    return tags


def checked_idempotency_key(value: object) -> str:
    """The text by which a repeated enqueue is known."""
    text = _checked_identifying_text("idempotency_key", value)
    if text.startswith(RESERVED_PREFIX):
        raise InvalidInput(
            "idempotency_key", f"what begins with {RESERVED_PREFIX!r} is Penstock's own; choose another beginning"
        )
    return text


def checked_unique_key(value: object) -> str:
    """The text by which jobs that are unique while they wait are the same."""
    return _checked_identifying_text("unique_key", value)


def _checked_identifying_text(field: str, value: object) -> str:
    text = _checked_text(field, value)
    size = len(text.encode())
    if not text or text.isspace():
        raise InvalidInput(field, "it is blank; leave it out, or give what makes the job unique")
    if size > IDEMPOTENCY_KEY_BYTES:
        raise InvalidInput(field, f"{size} bytes is too long; give at most {IDEMPOTENCY_KEY_BYTES}, or a digest")
    return text


def key_to_bytes(value: object) -> bytes:
    """An ordering key as it is stored and hashed: text is its UTF-8, an int its decimal text."""
    if isinstance(value, str):
        try:
            key = value.encode()
        except UnicodeEncodeError:
            raise InvalidInput("key", f"{shown(value)} holds half of a surrogate pair; pass bytes instead") from None
    elif isinstance(value, (bytes, bytearray, memoryview)):
        key = bytes(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        # Checked before it is written out: Python refuses to write very large numbers in decimal.
        if value.bit_length() > KEY_BYTES * 4:
            raise InvalidInput(
                "key", f"a number of {value.bit_length()} bits is too long; give at most {KEY_BYTES} bytes"
            )
        key = str(int(value)).encode()
    else:
        raise InvalidInput("key", f"text, bytes or int is needed, not {type(value).__name__}; convert it first")
    if len(key) > KEY_BYTES:
        raise InvalidInput("key", f"{len(key)} bytes is too long; give at most {KEY_BYTES}, or a digest")
    return key


def key_from_bytes(key: bytes) -> str | bytes:
    """A stored key as users see it: text where it is UTF-8, else the bytes."""
    try:
        return bytes(key).decode()
    except UnicodeDecodeError:
        return bytes(key)


def checked_count(field: str, value: object, *, least: int = 1, most: int = MOST_COUNT) -> int:
    """A whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(
            field, f"a whole number from {least} to {most} is needed, not {type(value).__name__} {shown(value)}"
        )
    if not least <= value <= most:
        raise InvalidInput(field, f"{_shown_number(value)} is out of bounds; give {least} to {most}")
    return int(value)


def _shown_number(value: int) -> str:
    return str(int(value)) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"


def checked_flag(field: str, value: object) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be True or False, not {shown(value)}")
    return value


def checked_priority(value: object) -> int:
    """0 goes first, 9 last."""
    return checked_count("priority", value, least=0, most=LOWEST_PRIORITY)


def checked_attempts(value: object) -> int:
    """How many attempts a job has."""
    return checked_count("max_attempts", value, most=MOST_ATTEMPTS)


def checked_concurrency(value: object) -> int:
    """How many jobs a worker runs at once."""
    return checked_count("concurrency", value, most=MOST_CONCURRENCY)


def checked_job_id(value: object, field: str = "job_id") -> int:
    """A job's id, as int or as its decimal text."""
    return _checked_id(field, value, "a job; give what enqueue returned")


def checked_entry_id(value: object, field: str = "before") -> int:
    """The same of an entry of the audit."""
    return _checked_id(field, value, "an entry; give that of one of app.audit()")


def _checked_id(field: str, value: object, what: str) -> int:
    if isinstance(value, str) and 1 <= len(value) <= 19 and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST_ID:
        written = _shown_number(value) if isinstance(value, int) else shown(value)
        raise InvalidInput(field, f"{written} is not the id of {what}, 1 to {HIGHEST_ID}")
    return int(value)


def _number_of_seconds(field: str, value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(field, f"seconds or a timedelta is needed, not {type(value).__name__} {shown(value)}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise InvalidInput(
            field, f"{shown(seconds)} is no length of time; give at most {LONGEST_DELAY_SECONDS} seconds"
        )
    return seconds


def checked_delay(field: str, value: object) -> float:
    """A wait in seconds; 0 means at once."""
    seconds = _number_of_seconds(field, value)
    if not 0 <= seconds <= LONGEST_DELAY_SECONDS:
        raise InvalidInput(
            field, f"{seconds:g} seconds is out of bounds; give 0 (at once) to {LONGEST_DELAY_SECONDS} (10 years)"
        )
    return seconds + 0.0  # -0.0 becomes 0.0


def checked_seconds(field: str, value: object) -> float:
    """A length of time that cannot be nothing, such as a timeout."""
    seconds = _number_of_seconds(field, value)
    if not 0 < seconds <= LONGEST_DELAY_SECONDS:
        raise InvalidInput(
            field, f"{seconds:g} seconds is out of bounds; give more than 0, up to {LONGEST_DELAY_SECONDS} (10 years)"
        )
    return seconds


def checked_days(field: str, value: object, what: str) -> float:
    """A length of time in days that cannot be nothing; a timedelta is as long as it says. `what` names it."""
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(field, f"{what}: days or a timedelta is needed, not {type(value).__name__} {shown(value)}")
    else:
        try:
            days = float(value)
        except OverflowError:
            days = math.inf
    if not 0 < days <= LONGEST_DELAY_DAYS:
        raise InvalidInput(
            field, f"{what}: {days:g} days is out of bounds; give more than 0, up to {LONGEST_DELAY_DAYS} (10 years)"
        )
    return days


def checked_run_at(value: object, field: str = "run_at") -> datetime:
    """An instant, in UTC. One in the past means at once."""
    if not isinstance(value, datetime):
        raise InvalidInput(
            field, f"an aware datetime is needed, not {type(value).__name__}; write datetime(..., tzinfo=UTC)"
        )
    if value.utcoffset() is None:
        raise InvalidInput(
            field,
            f"{value.isoformat()} has no time zone, so it names no instant; "
            "write datetime(..., tzinfo=UTC), or value.astimezone() for this machine's zone",
        )
    try:
        instant = value.astimezone(UTC)
    except (OverflowError, ValueError):
        instant = None
    if instant is None or not _EARLIEST_RUN_AT <= instant <= _LATEST_RUN_AT:
        raise InvalidInput(field, f"{value.isoformat()} is out of bounds; give a time in the years 1900 to 9998")
    return instant


def checked_choice(field: str, value: object, choices: Sequence[str | None]) -> Any:
    """One of a few words."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        words = [repr(choice) for choice in choices if choice is not None]
        raise InvalidInput(field, f"{shown(value)} is none of its values; give {' or '.join(words)}, or leave it out")
    return value


def checked_weights(field: str, value: object) -> dict[str, float]:
    """The share of each tenant."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"a dict is needed, not {type(value).__name__}; write weights={{'acme': 2}}")
    if len(value) > MOST_WEIGHTS:
        raise InvalidInput(field, f"{len(value)} weights are too many; give at most {MOST_WEIGHTS}: others weigh 1")
    weights: dict[str, float] = {}
    for tenant, weight in value.items():
        name = checked_name(field, tenant)
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0.001 <= weight <= 1_000_000 or not math.isfinite(weight):
            raise InvalidInput(field, f"{shown(weight)} is no weight of {name!r}; give a number from 0.001 to 1000000")
        weights[name] = float(weight)
    return weights
