"""An exception as text: what it says, where it came from, and the same of its causes and of a group's members.

    ValueError: order 5 cannot be charged            the summary: of a group with one member it is that member's
    asked by the nightly run                         its notes
      File "orders.py", line 12, in charge           the calls, innermost last
        raise ValueError(...) from error
    caused by KeyError: 'card'                       and so on; members are `member 1`, `member 2`, `member 2.1`
      File "orders.py", line 10, in charge

The text is bounded. Where not all of it has room, what each exception says stays, then the calls of the user's own code
that are nearest to where it was raised. Exceptions are the user's own code: whatever one does when it is looked at, a
cycle of causes too, there is a text.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.model.checks import ERROR_CHARACTERS, storable_text

__all__ = ["describe", "summarize", "unwrap"]

# At most so many exceptions of a chain or a group are described, and so deep a nest of groups.
MOST_EXCEPTIONS = 20
MOST_DEPTH = 10
MOST_NOTES = 20
# What exceptions say has so much room, shared evenly; the calls have the rest.
SAID_CHARACTERS = 6_000
CALL_CHARACTERS = 500
LEFT_OUT = "  ... calls are left out here ..."
# Of a deeper traceback, so many calls from its beginning and so many from its end are looked at.
FIRST_CALLS, LAST_CALLS = 20, 1_000

_PENSTOCK = Path(__file__).parents[1]
# What called the handler tells a user nothing.
_CALLERS = (
    *(f"{_PENSTOCK / folder}{os.sep}" for folder in ("worker", "spark")),
    f"{_PENSTOCK / 'task' / 'middleware.py'}",
)
_NOT_OWN = (
    "<frozen",
    *(f"{path}{os.sep}" for path in (_PENSTOCK, *map(sysconfig.get_path, ("stdlib", "platstdlib")))),
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(slots=True)
class _Call:
    """A call of a traceback, once for all its repetitions in a row; the nearness of the innermost is 0."""

    text: str
    is_own: bool
    nearness: int
    is_kept: bool = False


@dataclass(slots=True)
class _Described:
    """One exception: what it says, and its calls, innermost last."""

    said: str
    calls: list[_Call]

    def lines(self) -> Iterator[str]:
        """All that is kept of it."""
        yield self.said
        if not all(call.is_kept for call in self.calls):
            yield LEFT_OUT
        yield from (call.text for call in self.calls if call.is_kept)


def describe(error: BaseException) -> str:
    """The exception with its calls, notes, causes and members, as it is stored; its first line is its summary."""
    try:
        exceptions = list(_walk(error))
        room = SAID_CHARACTERS // len(exceptions)
        described = [_Described(_cut(heading + _say(each), room), _read_calls(each)) for heading, each in exceptions]
        _choose_calls(described)
        return storable_text("\n".join(line for each in described for line in each.lines()))
    except BaseException:  # SystemExit too.
        return storable_text(type(error).__name__)


def summarize(error: BaseException) -> str:
    """What an exception is and says, in one line; of a group with one member, what that is and says."""
    return storable_text(_name(unwrap(error)).partition("\n")[0])


def unwrap(error: BaseException) -> BaseException:
    """The only member of a group that has one, however deep; any other exception as it is."""
    for _ in range(MOST_DEPTH):
        members = _members(error)
        if len(members) != 1:
            break
        error = members[0]
    return error


def _walk(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Each exception that a traceback would tell of, once, with what it is to the one before."""
    seen: set[int] = set()
    opened: set[int] = set()
    # With its heading, and its number as a member.
    waiting: list[tuple[str, BaseException, str]] = [("", error, "")]
    while waiting and len(seen) < MOST_EXCEPTIONS:
        heading, each, number = waiting.pop()
        if id(each) in seen:
            continue
        members = _members(each)
        if len(members) == 1 and id(each) not in opened:
            opened.add(id(each))
            waiting += [("in ", each, number), (heading, members[0], number)]
            continue
        seen.add(id(each))
        yield heading, each
        if len(members) > 1 and number.count(".") < MOST_DEPTH:
            for index in range(min(len(members), MOST_EXCEPTIONS), 0, -1):
                of_member = f"{number}.{index}" if number else str(index)
                waiting.append((f"member {of_member}: ", members[index - 1], of_member))
        cause, context = _get(each, "__cause__"), _get(each, "__context__")
        if isinstance(cause, BaseException):
            waiting.append(("caused by ", cause, number))
        elif isinstance(context, BaseException) and not _get(each, "__suppress_context__"):
            waiting.append(("raised while handling ", context, number))


def _say(error: BaseException) -> str:
    """What an exception is and says, and its notes."""
    notes = _get(error, "__notes__")
    if notes is None:
        return _name(error)
    given = notes[:MOST_NOTES] if isinstance(notes, (list, tuple)) else [notes]
    return "\n".join([_name(error), *map(_as_text, given)])


def _name(error: BaseException) -> str:
    # Some texts begin with an empty line, and the first is what lists and logs show.
    kind, said = type(error).__name__, _as_text(error).lstrip("\r\n")
    members = _members(error)
    if len(members) > 1:
        first = members[0]
        for _ in range(MOST_DEPTH):
            first = next(iter(_members(first)), first)
        return f"{kind}: {said}, the first {type(first).__name__}: {_first_line(first)}"
    return f"{kind}: {said}" if said else kind


def _read_calls(error: BaseException) -> list[_Call]:
    frames = [frame for frame in _extract(_get(error, "__traceback__")) if not frame.filename.startswith(_CALLERS)]
    calls = []
    for (text, is_own), same in groupby((traceback.format_list([frame])[0], _is_own(frame)) for frame in frames):
        times = sum(1 for _ in same)
        repeated = f"\n  [repeated {times - 1} more times]" if times > 1 else ""
        calls.append(_Call(_cut(text.rstrip(), CALL_CHARACTERS) + repeated, is_own, 0))
    for nearness, call in enumerate(reversed(calls)):
        call.nearness = nearness
    return calls


def _extract(first: TracebackType | None) -> list[traceback.FrameSummary]:
    depth = sum(1 for _ in traceback.walk_tb(first))
    if depth <= FIRST_CALLS + LAST_CALLS:
        return list(traceback.extract_tb(first))
    return [*traceback.extract_tb(first, FIRST_CALLS), *traceback.extract_tb(first, -LAST_CALLS)]


def _is_own(frame: traceback.FrameSummary) -> bool:
    name = frame.filename
    return not name.startswith(_NOT_OWN) and not any(folder in name for folder in _INSTALLED)


def _choose_calls(described: list[_Described]) -> None:
    """Keep the calls there is room for: the user's own first, and of those the nearest to where it was raised."""
    room = ERROR_CHARACTERS - sum(len(each.said) + len(LEFT_OUT) + 2 for each in described)
    for call in sorted(
        (call for each in described for call in each.calls), key=lambda call: (not call.is_own, call.nearness)
    ):
        room -= len(call.text) + 1
        if room < 0:
            return
        call.is_kept = True


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    members = _get(error, "exceptions")
    return tuple(each for each in members if isinstance(each, BaseException)) if isinstance(members, tuple) else ()


def _as_text(value: object) -> str:
    try:
        return str(value)
    except BaseException as problem:
        return f"<its text cannot be read: {type(problem).__name__}>"


def _first_line(error: BaseException) -> str:
    return _as_text(error).lstrip("\r\n").partition("\n")[0]


def _get(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
