"""What is stored of an exception: what a traceback would print, in a bounded text whose first line says the most."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.model import error_text
from penstock.model.checks import ERROR_CHARACTERS
from penstock.model.error_text import describe, summarize, unwrap

CARDS: dict[str, str] = {}


def raised(function: Callable[[], object]) -> Exception:
    """What a function raises."""
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def fail_from() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        raise RuntimeError("order 5 cannot be read") from error


def fail_while_handling() -> None:
    try:
        CARDS["card"]
    except KeyError:
        raise RuntimeError("order 5 has no card")  # noqa: B904


def fail_alone() -> None:
    try:
        CARDS["card"]
    except KeyError:
        raise RuntimeError("order 5 has no card") from None


def headings(text: str) -> list[str]:
    """The lines that say what an exception is, and not where it came from."""
    return [line for line in text.splitlines() if not line.startswith("  ")]


def test_the_cause_follows_with_its_own_calls() -> None:
    text = describe(raised(fail_from))
    assert headings(text) == [
        "RuntimeError: order 5 cannot be read",
        "caused by JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]
    first, second = text.split("caused by")
    assert "raise RuntimeError" in first
    assert 'json.loads("{")' in second
    assert "json/decoder.py" in second


def test_the_context_follows_unless_it_is_suppressed() -> None:
    assert headings(describe(raised(fail_while_handling))) == [
        "RuntimeError: order 5 has no card",
        "raised while handling KeyError: 'card'",
    ]
    assert headings(describe(raised(fail_alone))) == ["RuntimeError: order 5 has no card"]


def test_notes_stand_under_what_they_are_about() -> None:
    error = raised(fail_from)
    error.add_note("asked by the nightly run")
    error.__cause__.add_note("from the old shop")  # type: ignore[union-attr]
    said = headings(describe(error))
    assert said[1] == "asked by the nightly run"
    assert said[3] == "from the old shop"


async def refuse(card: str) -> None:
    raise ValueError(f"card {card} is refused")


async def charge(*cards: str) -> None:
    async with asyncio.TaskGroup() as group:
        for card in cards:
            group.create_task(refuse(card))


def test_a_group_with_one_member_is_told_by_that_member() -> None:
    error = raised(lambda: asyncio.run(charge("4242")))
    text = describe(error)
    assert headings(text) == [
        "ValueError: card 4242 is refused",
        "in ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
    ]
    assert 'raise ValueError(f"card {card} is refused")' in text.split("in ExceptionGroup")[0]
    assert summarize(error) == "ValueError: card 4242 is refused"
    assert isinstance(unwrap(error), ValueError)


def test_the_members_of_a_group_are_numbered_and_the_first_is_in_the_summary() -> None:
    inner = ExceptionGroup("two more", [KeyError("a"), OSError("b")])
    group = ExceptionGroup("all of them", [ExceptionGroup("alone", [ValueError("one\ntwo")]), inner])
    assert headings(describe(group)) == [
        "ExceptionGroup: all of them (2 sub-exceptions), the first ValueError: one",
        "member 1: ValueError: one",
        "two",
        "in ExceptionGroup: alone (1 sub-exception)",
        "member 2: ExceptionGroup: two more (2 sub-exceptions), the first KeyError: 'a'",
        "member 2.1: KeyError: 'a'",
        "member 2.2: OSError: b",
    ]
    assert unwrap(group) is group


def test_the_causes_of_a_group_and_of_its_members_stand_where_they_belong() -> None:
    first, second = raised(fail_from), ValueError("b")
    group = ExceptionGroup("both", [first, second])
    group.__cause__ = OSError("the shop is closed")
    assert [line.partition(":")[0] for line in headings(describe(group))] == [
        "ExceptionGroup",
        "caused by OSError",
        "member 1",
        "caused by JSONDecodeError",
        "member 2",
    ]


def deep(depth: int) -> None:
    if depth:
        deeper(depth - 1)
    json.loads("{")


def deeper(depth: int) -> None:
    deep(depth)


def test_what_has_no_room_are_the_calls_of_others_and_then_the_farthest() -> None:
    def cause() -> None:
        try:
            deep(200)
        except ValueError as error:
            raise RuntimeError("it is deep") from error

    text = describe(raised(cause))
    assert len(text) <= ERROR_CHARACTERS
    above, below = text.split("caused by JSONDecodeError")
    assert 'raise RuntimeError("it is deep")' in above
    assert error_text.LEFT_OUT not in above
    assert error_text.LEFT_OUT in below
    # The nearest of our own is there, the library's after it is not.
    assert 'json.loads("{")' in below
    assert "decoder.py" not in below
    assert "decoder.py" in describe(raised(lambda: deep(0)))


def test_a_call_that_repeats_itself_is_told_once() -> None:
    def again() -> None:
        again()

    text = describe(raised(again))
    assert text.startswith("RecursionError: ")
    assert text.count(", in again") == 1
    assert "more times]" in text


class Unreadable(Exception):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class Mute(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise RuntimeError

    __context__ = __suppress_context__ = __traceback__ = __cause__  # type: ignore[assignment]


class Endless(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> tuple[Exception, ...]:
        return (self,)


class NotEvenATuple(ExceptionGroup[Exception]):
    exceptions = None  # type: ignore[assignment]


def in_a_circle() -> BaseException:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def long_chain() -> BaseException:
    error = last = ValueError("0")
    for number in range(1, 10_000):
        last.__cause__ = ValueError(str(number) * 500)
        last = last.__cause__
    return error


def nested_group() -> BaseException:
    error: Exception = ValueError("deep inside")
    for _ in range(900):
        error = ExceptionGroup("around", [error, KeyError("a")])
    return error


def with_notes(notes: object) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = notes  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (Unreadable(), "Unreadable: <its text cannot be read: SystemExit>"),
        (Mute("a"), "Mute: a"),
        (Endless("group", [ValueError("a")]), "Endless: group (1 sub-exception)"),
        (NotEvenATuple("group", [ValueError("a")]), "NotEvenATuple: group (1 sub-exception)"),
        (in_a_circle(), "ValueError: first"),
        (long_chain(), "ValueError: 0"),
        (
            nested_group(),
            "ExceptionGroup: around (2 sub-exceptions), the first ExceptionGroup: around (2 sub-exceptions)",
        ),
        (
            ExceptionGroup("many", [ValueError("x" * 999)] * 9_999),
            "ExceptionGroup: many (9999 sub-exceptions), the first",
        ),
        (with_notes(7), "ValueError: noted"),
        (with_notes([Unreadable(), b"", "n" * 1_000_000] * 100), "ValueError: noted"),
        (ValueError("x" * 10_000_000), "ValueError: xxx"),
        (ValueError("\0\ud800"), "ValueError: \N{REPLACEMENT CHARACTER}?"),
        (ValueError(), "ValueError"),
        (ValueError("\n\r\n  said late\n"), "ValueError:   said late\n"),
        (
            ExceptionGroup("two", [ValueError("\nsaid late"), KeyError()]),
            "ExceptionGroup: two (2 sub-exceptions), the first ValueError: said late\n",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_an_exception_does_there_is_a_text_that_fits(error: BaseException, first: str) -> None:
    text = describe(error)
    assert text.startswith(first)
    assert len(text) <= ERROR_CHARACTERS
    assert summarize(error)
    text.encode()
