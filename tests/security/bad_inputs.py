"""The bad inputs, as data: what a careless or hostile caller hands in, and what must become of it.

`refused` names the field of the InvalidInput; None says that the value is stored and comes back equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

__all__ = ["ARGUMENTS", "BATCHES", "DECLARATIONS", "HOSTILE_TEXTS", "IDS", "ITEMS", "OPTIONS", "SQL_CALLS", "Given"]


@dataclass(frozen=True, slots=True)
class Given:
    """One input and its fate."""

    name: str
    value: Any = None
    refused: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("not even a name")


# Stored anywhere a text may stand, and given back as it is.
HOSTILE_TEXTS = {
    "SQL": "'; drop table penstock.job; --",
    "SQL with a dollar quote": "$$; select pg_terminate_backend(pg_backend_pid()); $$",
    "SQL by a backslash": "\\'; drop schema penstock cascade; --",
    "HTML": '<script>alert(1)</script><img src=x onerror="alert(2)">',
    "a format of printf": "%s%n%(id)s%%",
    "a format of Python": "{0.__class__.__mro__}{id!r}",
    "a template": "${7*7}{{7*7}}#{7*7}",
    "a path": "../../../../etc/passwd",
    "a path of Windows": "C:\\..\\..\\con\\aux",
    "the end of a COPY": "\\.",
    "COPY's null": "\\N",
    "tabs and line ends": "a\tb\nc\rd\r\ne",
    "control characters": "\x01\x1a\x1b[31m\x7f",
    "a comma and braces": '{a,"b",NULL}',
    "text from right to left": "\u202eevil\u202c \u200f",
    "a combining tower": "e" + "\u0301" * 30,
    "an emoji of many parts": "👩‍👩‍👧‍👦",
    "the last character": "\U0010ffff",
    "a character that is none": "\uffff\ufdd0",
    "a byte order mark": "\ufeffx",
    "an escape": "\\u0000\\x00\\0",
    "quotes": "'\"`\u00b4\u2019",
    "a shell": "$(reboot) `reboot` ; reboot | reboot",
    "a header": "x\r\nSet-Cookie: a=b",
    "a formula": "=cmd|' /C calc'!A0",
}

_SIZE_OF_FRAME = len('{"value":""}')

ARGUMENTS = [
    *[Given(name, text) for name, text in HOSTILE_TEXTS.items()],
    Given("NUL", "a\0b"),
    Given("half a surrogate pair", "\ud800", "value"),
    Given("the other half", ["x", {"y": "\udfff"}], "value"),
    Given("half a surrogate pair as a name", {"\ud800": 1}, "value"),
    Given("NaN", math.nan, "value"),
    Given("infinity", math.inf, "value"),
    Given("NaN deep inside", {"a": [1, {"b": -math.inf}]}, "value"),
    Given("2^53 - 1", 2**53 - 1),
    Given("2^53 + 1", 2**53 + 1),
    Given("2^63", 2**63),
    Given("-2^63 - 1", -(2**63) - 1),
    Given("2^64", 2**64),
    Given("a float that hardly is one", 5e-324),
    Given("the greatest float", 1.7976931348623157e308),
    Given("minus nothing", -0.0),
    Given("a number of 5,000 digits", 10**5000, "value"),
    Given("depth 90", nested(90)),
    Given("depth 10,000", nested(10_000), "value"),
    Given("as long as allowed", "x" * (262_144 - _SIZE_OF_FRAME)),
    Given("one byte too long", "x" * (262_144 - _SIZE_OF_FRAME + 1), "args"),
    Given("empty text", ""),
    Given("an empty list", []),
    Given("an empty object", {}),
    Given("nothing", None),
    Given("an empty name", {"": {"": ""}}),
    Given("names of Python", {"__class__": "x", "__proto__": {"a": 1}, "constructor": 1}),
    Given("bytes", b"x", "value"),
    Given("a set", {1}, "value"),
    Given("numbers as names", {1: "x"}, "value"),
    Given("an object without a name", Opaque(), "value"),
    Given("a function", nested, "value"),
    Given("an iterator", iter(()), "value"),
    Given("1,024 texts", ["x"] * 1024),
]

GAP = datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))


def option(name: str, field_: str, value: Any, *, stored: bool = False) -> Given:
    return Given(f"{field_}: {name}", None, None if stored else field_, {field_: value})


OPTIONS = [
    *[option(name, "priority", value) for name, value in {
        "-1": -1, "10": 10, "2^31": 2**31, "2^63": 2**63, "10^5000": 10**5000, "true": True, "a float": 5.0,
        "text": "5", "NaN": math.nan,
    }.items()],
    *[option(name, "delay", value) for name, value in {
        "negative": -1, "NaN": math.nan, "infinite": math.inf, "huge": 1e300, "text": "5", "true": True,
        "too long": timedelta(days=4000), "negative span": timedelta(seconds=-1), "10^400": 10**400,
    }.items()],
    *[option(name, "run_at", value) for name, value in {
        "naive": datetime(2030, 1, 1), "the first year": datetime.min.replace(tzinfo=UTC),  # noqa: DTZ001
        "the last year": datetime.max.replace(tzinfo=UTC), "text": "2030-01-01", "a day": date(2030, 1, 1),
        "a number": 1e9,
    }.items()],
    option("in a gap of summer time", "run_at", GAP, stored=True),
    option("long ago", "run_at", datetime(1969, 7, 20, tzinfo=UTC), stored=True),
    *[option(name, "after", value) for name, value in {
        "0": [0], "-1": [-1], "2^63": [2**63], "text": ["x"], "one id as text": "123", "unknown": [10**18 * 1],
        "true": [True], "half": [1.5], "none": [None], "too many": list(range(1, 1002)), "SQL": ["1; drop table x"],
        "foreign digits": ["١٢"], "an object": Opaque(),
    }.items()],
    *[option(name, "on_parent_failure", value) for name, value in {"unknown": "explode", "none": None}.items()],
    *[option(name, "idempotency_key", value) for name, value in {
        "empty": "", "blank": " \t", "513 bytes": "é" * 256 + "x", "NUL": "a\0", "half a pair": "\ud800", "a number": 5,
        "bytes": b"x",
    }.items()],
    option("512 bytes", "idempotency_key", "é" * 256, stored=True),
    *[option(name, "unique", value) for name, value in {"unknown": "running", "true": True, "a number": 5}.items()],
    option("alone", "unique_key", "x"),
    *[option(name, "key", value) for name, value in {
        "513 bytes": "x" * 513, "true": True, "half": 1.5, "half a pair": "\ud800", "a list": [1], "10^5000": 10**5000,
    }.items()],
    *[option(name, "key", value, stored=True) for name, value in {
        "empty": "", "512 bytes": b"\xff" * 512, "NUL": "a\0b", "2^63": 2**63, "not UTF-8": b"\xff\x00\xfe",
    }.items()],
    *[option(name, field_, value) for field_ in ("tenant", "created_by") for name, value in {
        "empty": "", "blank": "\u3000 ", "201 characters": "é" * 201, "NUL": "a\0", "half a pair": "\udc00",
        "a number": 5,
    }.items()],
    option("200 characters", "tenant", "é" * 200, stored=True),
    *[option(name, "tags", value) for name, value in {
        "one text": "x", "an empty one": [""], "33": [f"t{n}" for n in range(33)], "none": [None],
        "201 characters": ["x" * 201], "a number": 5, "NUL": ["\0"],
    }.items()],
    *[option(name, "request_timeout", value) for name, value in {
        "0": 0, "negative": -1, "NaN": math.nan, "text": "soon",
    }.items()],
    option("not one", "connection", object()),
    Given("run_at and delay", None, "delay", {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}),
]  # fmt: skip

_BAD_NAMES = {
    "empty": "", "blank": "  ", "201 characters": "x" * 201, "NUL": "a\0b", "half a pair": "\ud800", "a number": 5,
    "none": None, "bytes": b"x", "one dot": ".", "two dots": "..",
}  # fmt: skip

# The options of app.queue(...).
DECLARATIONS = [
    *[Given(f"queue: {name}", value, "queue") for name, value in _BAD_NAMES.items()],
    Given("queue: as a deleted one", "q (deleted 7)", "queue"),
    *[Given(f"partitions: {value!r:.20}", "q", "partitions", {"partitions": value})
      for value in (0, -1, 1025, True, 1.5, "2", 10**400, math.nan)],
    *[Given(f"max_length: {value!r:.20}", "q", "max_length", {"max_length": value})
      for value in (0, -1, True, 1.5, "2", 2**53, math.inf)],
    *[Given(f"max_wait: {value!r:.20}", "q", "max_wait", {"max_wait": value})
      for value in (0, -1, math.nan, math.inf, "2", True, 1e12)],
    *[Given(f"{name}: {value!r:.20}", "q", name, {name: value}) for name in ("limit", "total_limit", "per_key")
      for value in (0, -1, True, 1.5, "2", 2**31, 10**400, math.inf)],
    *[Given(f"{name}: {value!r:.20}", "q", name, {name: value}) for name in ("rate", "total_rate", "per_key_rate")
      for value in (0, 5, 1.5, True, "", "5", "0/s", "-1/s", "nan/s", "1e9/s", "9" * 400 + "/s", "5/s; drop table x",
                    "1/s\0", "\ud800/s", "\u0665/s", "5/w", b"5/s", ["5/s"])],
    *[Given(f"weights: {value!r:.20}", "q", "weights", {"fair_by": "tenant", "weights": value})
      for value in (5, "a=1", [("a", 1)], {"a": 0}, {"a": -1}, {"a": math.nan}, {"a": math.inf}, {"a": "2"},
                    {"a": True}, {"a": 10**400}, {"": 1}, {"a\0": 1}, {"\ud800": 1}, {5: 1}, {"x" * 201: 1})],
    *[Given(f"{name}: {value!r:.20}", "q", name, {name: value}) for name in ("order", "fair_by", "on_retry", "on_dead")
      for value in ("", "x", "KEY", 1, True, b"key", ["key"], "\ud800", math.nan)],
]  # fmt: skip

# The options of queue.task(...) for handlers that are given several jobs together.
BATCHES = [
    *[Given(f"batch: {value!r:.20}", None, "batch", {"batch": value})
      for value in (0, -1, 1001, True, 1.5, "2", 10**400, math.nan, math.inf, [1], "\ud800", Opaque)],
    *[Given(f"batch_wait: {value!r:.20}", None, "batch_wait", {"batch": 2, "batch_wait": value})
      for value in (-1, 10.1, True, "1", math.nan, math.inf, 10**400, timedelta(seconds=11), timedelta(-1), [1])],
    Given("batch_wait alone", None, "batch_wait", {"batch_wait": 1}),
]  # fmt: skip

# Tokens by name, and the options of app.create_token(...).
TOKENS = [
    *[Given(f"name: {name}", value, "name") for name, value in _BAD_NAMES.items()],
    *[Given(f"role: {value!r:.20}", "n", "role", {"role": value})
      for value in ("", "Admin", "read ", "owner", None, 1, True, b"read", ["read"], "\ud800", "read\0")],
    *[Given(f"queues: {value!r:.20}", "n", "queues", {"queues": value})
      for value in ("q", [], [""], ["\0"], ["\ud800"], [None], [["q"]], 5, {"q": 1}, {"q"}, ["q"] * 5 + ["x" * 201],
                    [str(number) for number in range(1_001)])],
    *[Given(f"tenant: {value!r:.20}", "n", "tenant", {"tenant": value})
      for value in ("", " ", "x" * 201, "\0", "\ud800", 5, True, b"x")],
    *[Given(f"tenant with {role}", "n", "tenant", {"tenant": "acme", "role": role}) for role in ("work", "admin")],
    *[Given(f"expires: {value!r:.20}", "n", "expires", {"expires": value})
      for value in (0, -1, math.nan, math.inf, "30d", True, 1e12, 10**400, timedelta(0), timedelta(-1),
                    date(2030, 1, 1), datetime(2030, 1, 1), datetime(1970, 1, 1, tzinfo=UTC))],  # noqa: DTZ001
    *[Given(f"hides_args: {value!r:.20}", "n", "hides_args", {"hides_args": value}) for value in (None, 1, "yes")],
    Given("hides_args with work", "n", "hides_args", {"hides_args": True, "role": "work"}),
    Given("role: an object without a name", "n", "role", {"role": Opaque()}),
]  # fmt: skip

# The options of app.audit(...).
AUDITS = [
    *[Given(f"limit: {value!r:.20}", None, "limit", {"limit": value})
      for value in (0, -1, 10_001, True, 1.5, "5", None)],
    *[Given(f"{name}: {value!r:.20}", None, name, {name: value}) for name in ("actor", "act", "target")
      for value in ("", " ", "x" * 201, "\0", "\ud800", 5, True, b"x", ["x"])],
    *[Given(f"since: {value!r:.40}", None, "since", {"since": value})
      for value in (0, "1d", True, date(2030, 1, 1), datetime(2030, 1, 1), datetime.min.replace(tzinfo=UTC))],  # noqa: DTZ001
]  # fmt: skip

# The options of app.blocked_keys(...).
BLOCKED_KEYS = [
    *[Given(f"limit: {value!r:.20}", None, "limit", {"limit": value})
      for value in (0, -1, 1_001, True, 1.5, "5", None)],
    *[Given(f"kind: {value!r:.20}", None, "kind", {"kind": value})
      for value in ("", "Held", "halted\0", "\ud800", 1, True, b"held", ["held"])],
]  # fmt: skip

# What is no job of a batch handler that takes list[dict[str, int]].
ITEMS: dict[str, Any] = {
    "a number": 5, "text": "abc", "bytes": b"x", "a list": [{"n": 1}], "nothing": None, "a type": dict,
    "an object without a name": Opaque(), "numbers as names": {1: 1}, "a value that does not fit": {"n": "x"},
    "half a surrogate pair": {"\ud800": 1}, "NaN": {"n": math.nan},
}  # fmt: skip

IDS: dict[str, Any] = {
    "0": 0, "-1": -1, "2^63": 2**63, "10^400": 10**400, "text": "abc", "SQL": "1; drop table x", "half": 1.5,
    "true": True, "empty": "", "foreign digits": "١٢", "a sign": "+1", "spaces": " 1 ", "a list": [1], "NaN": math.nan,
    "hexadecimal": "0x10", "underscores": "1_0", "bytes": b"1",
}  # fmt: skip

# Arguments of penstock.enqueue as SQL writes them; the rest are its defaults.
SQL_CALLS: list[tuple[str, str, str | None]] = [
    ("an unknown queue", "'nowhere', 't'", "NotFound"),
    ("no queue", "null, 't'", "queue"),
    ("a hostile queue", "'''; drop table penstock.job; --', 't'", "NotFound"),
    ("no task", "'q', null", "task"),
    ("an empty task", "'q', ''", "task"),
    ("a blank task", "'q', '  '", "task"),
    ("a task of 201 characters", "'q', repeat('x', 201)", "task"),
    ("a dot as task", "'q', '.'", "task"),
    ("two dots as tenant", "'q', 't', tenant => '..'", "tenant"),
    ("two dots as tag", "'q', 't', tags => '{a,..}'", "tags"),
    ("no arguments", "'q', 't', null", "args"),
    ("a list of arguments", "'q', 't', '[]'", "args"),
    ("a number as arguments", "'q', 't', '1'", "args"),
    ("JSON's null as arguments", "'q', 't', 'null'", "args"),
    ("arguments too long", "'q', 't', jsonb_build_object('value', repeat('x', 262144))", "args"),
    ("arguments as long as allowed", "'q', 't', jsonb_build_object('value', repeat('x', 262131))", None),
    ("a key of 513 bytes", "'q', 't', key => repeat('x', 513)", "key"),
    ("a key of 512 bytes", "'q', 't', key => repeat('x', 512)", None),
    ("a key twice", "'q', 't', key => 'a', key_bytes => 'a'", "key"),
    ("a key that is not UTF-8", "'q', 't', key_bytes => '\\xff00'", None),
    ("priority -1", "'q', 't', priority => -1", "priority"),
    ("priority 10", "'q', 't', priority => 10", "priority"),
    ("priority 2^31 - 1", "'q', 't', priority => 2147483647", "priority"),
    ("no priority", "'q', 't', priority => null", "priority"),
    ("a negative delay", "'q', 't', delay => -1", "delay"),
    ("a delay that is NaN", "'q', 't', delay => 'NaN'", "delay"),
    ("an infinite delay", "'q', 't', delay => 'infinity'", "delay"),
    ("a delay and a time", "'q', 't', delay => 1, run_at => now()", "delay"),
    ("an infinite time", "'q', 't', run_at => 'infinity'", "run_at"),
    ("a time before all", "'q', 't', run_at => '-infinity'", "run_at"),
    ("the year 294276", "'q', 't', run_at => '294276-01-01'", "run_at"),
    ("the year 9999", "'q', 't', run_at => '9999-12-31 23:59:59+00'", "run_at"),
    ("a time before Christ", "'q', 't', run_at => '4713-01-01 BC'", "run_at"),
    ("after 0", "'q', 't', after => '{0}'", "after"),
    ("after -1", "'q', 't', after => '{-1}'", "after"),
    ("after nothing known", "'q', 't', after => '{9223372036854775807}'", "after"),
    ("after null", "'q', 't', after => '{null}'", "after"),
    ("after a table", "'q', 't', after => '{{1,2},{3,4}}'", "after"),
    ("after too many", "'q', 't', after => array(select generate_series(1, 1001))", "after"),
    ("after none", "'q', 't', after => '{}'", None),
    ("on_parent_failure unknown", "'q', 't', on_parent_failure => 'explode'", "on_parent_failure"),
    ("on_parent_failure null", "'q', 't', on_parent_failure => null", "on_parent_failure"),
    ("an empty idempotency key", "'q', 't', idempotency_key => ''", "idempotency_key"),
    ("a blank idempotency key", "'q', 't', idempotency_key => '  '", "idempotency_key"),
    ("an idempotency key of 513 bytes", "'q', 't', idempotency_key => repeat('x', 513)", "idempotency_key"),
    ("unique unknown", "'q', 't', \"unique\" => 'running'", "unique"),
    ("unique with an idempotency key", "'q', 't', \"unique\" => 'waiting', idempotency_key => 'x'", "unique"),
    ("a unique key alone", "'q', 't', unique_key => 'x'", "unique_key"),
    ("a blank unique key", "'q', 't', \"unique\" => 'waiting', unique_key => ' '", "unique_key"),
    ("an empty tenant", "'q', 't', tenant => ''", "tenant"),
    ("a creator of 201 characters", "'q', 't', created_by => repeat('x', 201)", "created_by"),
    ("a trace of nobody", "'q', 't', traceparent => 'x'", "traceparent"),
    ("a state without a trace", "'q', 't', tracestate => 'a=1'", "traceparent"),
    ("an empty tag", "'q', 't', tags => '{\"\"}'", "tags"),
    ("a null tag", "'q', 't', tags => '{null}'", "tags"),
    ("33 tags", "'q', 't', tags => array(select 't' || n from generate_series(1, 33) as n)", "tags"),
    ("a table of tags", "'q', 't', tags => '{{a,b},{c,d}}'", "tags"),
    ("no tags", "'q', 't', tags => '{}'", None),
    ("a number greater than any float", "'q', 't', '{\"value\": 1e400}'", None),
    ("a number of 5,001 digits", "'q', 't', '{\"value\": 1e5000}'", None),
    ("a number as small as nothing", "'q', 't', '{\"value\": 1e-5000}'", None),
    ("depth 2,000", "'q', 't', ('{\"value\":' || repeat('[', 2000) || repeat(']', 2000) || '}')::jsonb", None),
    ("an argument nobody takes", "'q', 't', '{\"strange\": 1}'", None),
    ("a context of one's own", "'q', 't', '{\"context\": 1}'", None),
]
