"""Values as JSON: what is accepted comes back, what would be changed without a word is refused by its path."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.model.checks import ARGS_BYTES
from penstock.model.encoding import MOST_DEPTH, encode_arguments, encode_result, encode_value

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


class Color(Enum):
    RED = "red"


class Weight(Enum):
    LIGHT = 1.5


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    ANNA = "anna"


@dataclass
class Address:
    street: str
    lines: set[str] = field(default_factory=set)
    height: float = 0.0


class Customer(pydantic.BaseModel):
    name: str
    discount: float | None = None


class Unwritable(pydantic.BaseModel):
    @pydantic.model_serializer
    def refuse(self) -> dict[str, Any]:
        raise RuntimeError("\ud800")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_what_json_has_comes_back_equal(arguments: dict[str, Any]) -> None:
    assert msgspec.json.decode(encode_arguments(arguments)) == arguments


@given(JSON)
def test_a_result_comes_back_equal(value: Any) -> None:
    back = msgspec.json.decode(encode_result(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "number", [2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63, -(2**63), 2**64, 10**40, 1e308, -0.0, 5e-324]
)
def test_numbers_are_exact(number: float) -> None:
    back = msgspec.json.decode(encode_result(number))
    assert (back, type(back), math.copysign(1, back)) == (number, type(number), math.copysign(1, number))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (Color.RED, '"red"'),
        (Weight.LIGHT, "1.5"),
        (Level.HIGH, "3"),
        (Name.ANNA, '"anna"'),
        ((1, (2,)), "[1,[2]]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (Address("Elm"), '{"street":"Elm","lines":[],"height":0.0}'),
        (Address("Elm", {"x"}), '{"street":"Elm","lines":["x"],"height":0.0}'),
        (Customer(name="Ann"), '{"name":"Ann","discount":null}'),
        ([Customer(name="Ann")], '[{"name":"Ann","discount":null}]'),
        ("a\0b", '"a\\u0000b"'),
        (None, "null"),
        ({"a": None}, '{"a":null}'),
    ],
)
def test_what_json_lacks_is_converted(value: object, written: str) -> None:
    assert encode_result(value) == written.encode()
    assert encode_arguments({"x": value}) == f'{{"x":{written}}}'.encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "x"),
        (math.inf, "x"),
        (-math.inf, "x"),
        ([1.0, math.nan], "x[1]"),
        ({"a": [{"b": math.inf}]}, "x.a[0].b"),
        ((None, math.nan), "x[1]"),
        (Address("Elm", height=math.nan), "x.height"),
        (Customer(name="Ann", discount=math.nan), "x.discount"),
        ({1, 2}, "x"),
        (type("Tags", (set,), {})(), "x"),
        pytest.param(10**5000, "x", id="huge"),
        (frozenset(), "x"),
        ([{"a"}], "x[0]"),
        (b"bytes", "x"),
        ([b""], "x[0]"),
        (bytearray(b"a"), "x"),
        (memoryview(b"a"), "x"),
        ({1: 2}, "x"),
        ({"a": {1.5: 2}}, "x.a"),
        ({None: 1}, "x"),
        ({True: 1}, "x"),
        ({(1, 2): 1}, "x"),
        ({UUID(int=1): 1}, "x"),
        ("\ud800", "x"),
        ({"\udfff": 1}, "x"),
        (["ok", "\ud800"], "x"),
        (object(), "x"),
        ([1j], "x"),
        (range(3), "x"),
        (print, "x"),
        (int, "x"),
        (iter([1]), "x"),
        (Unwritable(), "x"),
    ],
)
def test_what_would_not_come_back_is_refused_by_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidInput) as in_arguments:
        encode_arguments({"before": 1, "x": value, "after": None})
    with pytest.raises(InvalidInput) as alone:
        encode_value("x", value)
    assert in_arguments.value.field == alone.value.field == path


def test_a_name_that_is_not_text_is_refused_by_itself() -> None:
    with pytest.raises(InvalidInput) as refused:
        encode_arguments({"fine": 1, "\ud800": 1})
    assert refused.value.field == "\ud800"


def test_null_itself_is_not_mistaken_for_a_float_that_is_no_number() -> None:
    assert encode_arguments({"a": None, "b": 1.5, "c": "null"}) == b'{"a":null,"b":1.5,"c":"null"}'


def test_the_limit_of_length_is_exact() -> None:
    fitting = "a" * (ARGS_BYTES - len('{"x":""}'))
    assert len(encode_arguments({"x": fitting})) == ARGS_BYTES
    with pytest.raises(InvalidInput, match="262145 bytes of JSON is too long; give at most 262144") as refused:
        encode_arguments({"x": fitting + "a"})
    assert refused.value.field == "args"
    assert len(encode_result("a" * (ARGS_BYTES - 2))) == ARGS_BYTES
    with pytest.raises(InvalidInput, match=r"^result: "):
        encode_result("a" * (ARGS_BYTES - 1))


def test_the_limit_of_depth_is_exact() -> None:
    assert encode_result(nested(MOST_DEPTH)) == b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    for levels in (MOST_DEPTH + 1, 500, 10_000):
        with pytest.raises(InvalidInput, match=r"^x: it is nested too deeply; give at most 100 levels"):
            encode_arguments({"x": nested(levels)})


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encode_result(loop)


def test_a_wide_value_is_not_mistaken_for_a_deep_one() -> None:
    wide = [{"a": [number]} for number in range(1_000)]
    assert msgspec.json.decode(encode_result(wide)) == wide
