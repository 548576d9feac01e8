"""Arguments: bound to the handler's signature, and back by its annotations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.task.arguments import Arguments

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class Color(Enum):
    RED = "red"


class Weight(Enum):
    LIGHT = 1.5


@dataclass
class Line:
    sku: str
    at: datetime


class Order(pydantic.BaseModel):
    id: UUID
    due: date = pydantic.Field(alias="dueOn")


class StrictOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    due: date


Context = type("Context", (), {"__module__": "penstock.worker.context"})
ForeignContext = type("Context", (), {"__module__": "somewhere"})


def plain(customer_id: str, amount: float) -> None: ...


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as error:
        act()
    return error.value.field


def back(function: Callable[..., Any], **named: Any) -> dict[str, Any]:
    arguments = Arguments(function)
    return arguments.decode(arguments.encode(named))


def test_arguments_are_written_by_name_and_come_back() -> None:
    arguments = Arguments(plain)
    raw = arguments.encode({"customer_id": "c-42", "amount": 1.5})
    assert raw == b'{"customer_id":"c-42","amount":1.5}'
    assert arguments.decode(raw) == {"customer_id": "c-42", "amount": 1.5}
    assert arguments.decode(raw.decode()) == {"customer_id": "c-42", "amount": 1.5}
    assert arguments.encode(MappingProxyType({"customer_id": "c", "amount": 1})) == b'{"customer_id":"c","amount":1}'


def test_names_that_do_not_fit_are_refused_by_name() -> None:
    arguments = Arguments(plain)
    assert refused(lambda: arguments.encode({"customer_id": "c"})) == "amount"
    assert refused(lambda: arguments.encode({"customer_id": "c", "amount": 1, "extra": 2})) == "extra"
    assert refused(lambda: arguments.encode({"customer_id": "c", "amuont": 1})) == "amuont"
    assert refused(lambda: arguments.encode({"customer_id": "c", 7: 1})) == "args"  # type: ignore[dict-item]
    assert refused(lambda: arguments.encode({"customer_id": "c", "amount": {1}})) == "amount"
    for wrong in (None, 7, "text", [("customer_id", "c")]):
        assert refused(lambda wrong=wrong: arguments.encode(wrong)) == "args"  # type: ignore[misc]


def test_a_refusal_says_what_the_handler_takes() -> None:
    with pytest.raises(InvalidInput, match="plain has no argument 'x'; it takes: customer_id, amount"):
        Arguments(plain).encode({"customer_id": "c", "amount": 1, "x": 2})


def test_arguments_by_position_are_bound_by_name() -> None:
    arguments = Arguments(plain)
    assert arguments.bind(("c", 2), {}) == {"customer_id": "c", "amount": 2}
    assert arguments.bind(("c",), {"amount": 2}) == {"customer_id": "c", "amount": 2}
    assert refused(lambda: arguments.bind(("c", 2, 3), {})) == "args"
    assert refused(lambda: arguments.bind(("c",), {"customer_id": "d"})) == "customer_id"


def test_the_context_is_given_by_the_worker_and_is_no_argument() -> None:
    def named(context: Any, to: str, **headers: str) -> None: ...

    arguments = Arguments(named)
    assert arguments.context_parameter == "context"
    assert arguments.names == {"to"}
    assert arguments.bind(("a@b.c",), {}) == {"to": "a@b.c"}
    assert refused(lambda: arguments.encode({"to": "a@b.c", "context": {}})) == "context"
    assert refused(lambda: arguments.decode(b'{"to":"a@b.c","context":{}}')) == "context"


def test_the_context_is_known_by_its_annotation_too() -> None:
    def context_parameter(annotation: object) -> str | None:
        def handler(to: str, job: Any = None) -> None: ...

        handler.__annotations__["job"] = annotation
        return Arguments(handler).context_parameter

    annotation: object
    for annotation in (Context, Context | None, "penstock.Context", "Context", "penstock.Context | None"):
        assert context_parameter(annotation) == "job"
    for annotation in (ForeignContext, "ForeignContext", "missing.Context", str, "str", None):
        assert context_parameter(annotation) is None


def test_defaults_may_be_left_out_and_any_name_may_be_taken() -> None:
    def flexible(to: str, *ignored: Any, copies: int = 1, **headers: str) -> None: ...

    arguments = Arguments(flexible)
    assert arguments.encode({"to": "a"}) == b'{"to":"a"}'
    assert arguments.decode(b'{"to":"a","x":"y"}') == {"to": "a", "x": "y"}
    assert arguments.defaults == {"copies": 1}
    assert refused(lambda: arguments.encode({"copies": 2, "x": "y"})) == "to"


def test_methods_partials_wrappers_and_callable_objects_are_handlers() -> None:
    class Mailer:
        def send(self, to: str, at: datetime) -> None: ...
        def __call__(self, to: str, at: datetime) -> None: ...

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for handler in (Mailer().send, Mailer(), functools.partial(Mailer().send), functools.partial(Mailer())):
        assert back(handler, to="a", at=noon) == {"to": "a", "at": noon}
    assert back(functools.partial(Mailer().send, to="b"), at=noon) == {"at": noon}
    assert Arguments(wrapped).names == {"customer_id", "amount"}


def test_a_handler_whose_arguments_cannot_be_named_is_refused_when_it_is_declared() -> None:
    def by_position(a: int, /) -> None: ...

    assert refused(lambda: Arguments(by_position)) == "a"
    assert refused(lambda: Arguments(type("C", (), {"__call__": 7})())) == "task"


def test_annotations_bring_back_what_json_lacks() -> None:
    def handler(
        at: datetime, day: date, uuid: UUID, price: Decimal, color: Color, weight: Weight, line: Line, order: Order,
        strict: StrictOrder, lines: list[Line], pair: tuple[int, str], wait: timedelta, by_number: dict[str, Decimal],
        maybe: date | None, orders: list[Order], choice: Literal["a", "b"],
    ) -> None: ...  # fmt: skip

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    named: dict[str, Any] = {
        "at": noon, "day": date(2026, 1, 1), "uuid": UUID(int=7), "price": Decimal("1.10"), "color": Color.RED,
        "weight": Weight.LIGHT, "line": Line("s", noon), "order": Order(id=UUID(int=7), dueOn=date(2026, 1, 1)),
        "strict": StrictOrder(due=date(2026, 1, 1)), "lines": [Line("s", noon)], "pair": (1, "a"),
        "wait": timedelta(hours=1), "by_number": {"a": Decimal(1)}, "maybe": None,
        "orders": [Order(id=UUID(int=8), dueOn=date(2026, 1, 2))], "choice": "b",
    }  # fmt: skip
    assert back(handler, **named) == named


def test_a_union_of_types_that_look_alike_is_the_first_that_fits() -> None:
    def handler(when: datetime | date | str, value: int | Decimal | UUID) -> None: ...

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert back(handler, when=noon, value=7) == {"when": noon, "value": 7}
    assert back(handler, when=date(2026, 1, 1), value=UUID(int=7))["when"] == date(2026, 1, 1)
    assert back(handler, when="tomorrow", value=Decimal(1)) == {"when": "tomorrow", "value": Decimal(1)}


def test_annotations_that_cannot_be_resolved_leave_the_value_as_it_is() -> None:
    def handler(a: Missing, b: UUID, c: UUID) -> None: ...

    assert back(handler, a=[1], b=UUID(int=1), c=UUID(int=2)) == {"a": [1], "b": UUID(int=1), "c": UUID(int=2)}


def test_annotations_may_name_what_is_defined_later() -> None:
    def handler(a: Later) -> None: ...

    arguments = Arguments(handler)

    @dataclass
    class Later:
        x: int

    assert Later(1) == Later(1)
    assert arguments.decode(b'{"a":{"x":1}}')["a"] in ({"x": 1}, Later(1))


def test_json_types_are_passed_on_without_a_look() -> None:
    def handler(a: int, b: list[dict[str, Any]], c: str | None = None) -> None: ...

    assert Arguments(handler).decode(b'{"a":"text","b":7}') == {"a": "text", "b": 7}


def test_extra_names_are_converted_by_their_annotation() -> None:
    def handler(**dates: date) -> None: ...

    assert back(handler, a=date(2026, 1, 1)) == {"a": date(2026, 1, 1)}


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"at":"yesterday"}', "at"),
        (b'{"at":7}', "at"),
        (b"{}", "at"),
        (b'{"at":null,"b":1}', "b"),
        (b"[]", "args"),
        (b"null", "args"),
        (b"", "args"),
        (b"{", "args"),
        (b'{"at":NaN}', "args"),
        (b"\xff", "args"),
        (b'{"at":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "args"),
    ],
)
def test_what_cannot_be_decoded_is_refused_by_its_field(raw: bytes, field: str) -> None:
    def handler(at: datetime) -> None: ...

    assert refused(lambda: Arguments(handler).decode(raw)) == field


@given(st.datetimes(timezones=st.just(UTC)), st.uuids(), st.decimals(allow_nan=False), st.dates())
def test_converted_types_come_back_equal(at: datetime, uuid: UUID, price: Decimal, day: date) -> None:
    def handler(at: datetime, uuid: UUID, price: Decimal, day: date) -> None: ...

    assert back(handler, at=at, uuid=uuid, price=price, day=day) == {"at": at, "uuid": uuid, "price": price, "day": day}
