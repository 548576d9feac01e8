"""Arguments by position: what a call by position gets is what a call by name would."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.task.arguments import Arguments

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def handle(to: str, amount: Any = 3, note: str | None = None) -> Any:
    return to, amount, note


def with_context(context: Any, to: str) -> Any:
    return to


def positional_of(function: Callable[..., Any]) -> Any:
    arguments = Arguments(function)
    with pytest.raises(InvalidInput):
        arguments.decode("[]")
    return arguments.decode_positional


@given(st.fixed_dictionaries({"to": st.text()}, optional={"amount": JSON, "note": st.none() | st.text()}))
def test_by_position_and_by_name_are_the_same(named: dict[str, Any]) -> None:
    arguments = Arguments(handle)
    raw = arguments.encode(named)
    by_name = arguments.decode(raw)
    assert arguments.decode_positional is not None
    for form in (raw, raw.decode()):
        values = arguments.decode_positional(form)
        assert values is not None
        assert repr(handle(*values)) == repr(handle(**by_name))


def test_the_context_is_not_among_them() -> None:
    assert positional_of(with_context)('{"to":"a"}') == ("a",)


@pytest.mark.parametrize("raw", ['{"amount":1}', '{"to":"a","more":1}', '{"to":"a"', "[]", "", "[" * 100_000])
def test_what_does_not_fit_is_left_to_decode(raw: str) -> None:
    arguments = Arguments(handle)
    with pytest.raises(InvalidInput):
        arguments.decode(raw)
    assert arguments.decode_positional is not None
    assert arguments.decode_positional(raw) is None


@functools.wraps(handle)
def wrapped(**named: Any) -> Any:
    return handle(**named)


@functools.wraps(handle)
def with_another_default(to: str, amount: Any = 5, note: str | None = None) -> Any:
    return handle(to, amount, note)


class Called:
    def __call__(self, to: str) -> None: ...

    def method(self, to: str) -> None: ...


def only_by_name(to: str, *, amount: int) -> None: ...


def any_names(to: str, **more: Any) -> None: ...


def converted(to: str, at: datetime) -> None: ...


def context_later(to: str, context: Any = None) -> None: ...


def shared_default(to: list[str] = []) -> None: ...  # noqa: B006


@pytest.mark.parametrize(
    "function",
    [
        *(
            wrapped,
            with_another_default,
            functools.partial(handle, amount=1),
            Called(),
            Called().method,
            only_by_name,
            any_names,
            converted,
        ),
        *(context_later, shared_default),
    ],
)
def test_what_may_want_names_or_other_values_is_called_by_name(function: Callable[..., Any]) -> None:
    assert positional_of(function) is None


def test_a_function_that_was_changed_where_it_stands_is_called_by_name() -> None:
    """So do tools that reload modules; its parameters may have another order then."""

    def handler(to: str, amount: int = 3) -> Any:
        return to, amount

    def reloaded(amount: int, to: str = "b") -> Any:
        return to, amount

    decode = positional_of(handler)
    assert decode('{"to":"a"}') == ("a", 3)
    before = handler.__code__
    handler.__code__ = reloaded.__code__
    assert decode('{"to":"a"}') is None
    handler.__code__ = before
    arguments = Arguments(handler)
    handler.__defaults__ = (5,)
    assert decode('{"to":"a"}') is None
    assert arguments.decode('{"to":"a"}') == {"to": "a"}
    assert arguments.decode_positional is None
