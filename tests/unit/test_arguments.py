"""Arguments: bound to the handler's signature, and back by its annotations."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union
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


Context = type("Context", (), {"__module__": "penstock.task.context"})
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


def test_the_context_comes_first_or_has_a_default() -> None:
    def first(context: Any, to: str) -> None: ...
    def last(to: str, context: Any) -> None: ...
    def with_default(to: str, context: Any = None) -> None: ...
    def by_name(*, context: Any, to: str) -> None: ...
    def by_name_with_default(to: str, *, context: Any = None) -> None: ...

    for handler in (first, with_default, by_name_with_default):
        arguments = Arguments(handler)
        assert arguments.context_parameter == "context"
        assert arguments.names == {"to"}
    for refused_handler, name in ((last, "last"), (by_name, "by_name")):
        with pytest.raises(InvalidInput) as caught:
            Arguments(refused_handler)
        assert str(caught.value) == (
            f"context: {name} takes it neither first nor with a default; write def {name}(context, ...), "
            "or context=None"
        )


def test_a_context_under_another_name_is_refused() -> None:
    def arguments(annotation: object) -> Arguments:
        def handler(job: Any, to: str) -> None: ...

        handler.__annotations__["job"] = annotation
        return Arguments(handler)

    annotation: object
    for annotation in (Context, Context | None, "penstock.Context", "Context", "penstock.Context | None"):
        with pytest.raises(
            InvalidInput, match="job: argument 'job' of handler is annotated as a Context; call it 'context'"
        ):
            arguments(annotation)
    for annotation in (ForeignContext, "ForeignContext", "missing.Context", str, "str", None):
        assert arguments(annotation).names == {"job", "to"}


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
    # As text they have what a number in JSON cannot say, or nothing to add.
    assert back(handler, **named | {"price": Decimal("NaN")})["price"].is_nan()
    assert back(handler, **named | {"at": datetime(2026, 1, 1)})["at"] == datetime(2026, 1, 1)  # noqa: DTZ001


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


def test_json_types_that_came_by_another_way_are_passed_on_without_a_look() -> None:
    def handler(a: int, b: list[dict[str, Any]], c: str | None = None) -> None: ...

    assert Arguments(handler).decode(b'{"a":"text","b":7}') == {"a": "text", "b": 7}


class Shape(TypedDict):
    sides: int


class Level(IntEnum):
    LOW = 1


# By annotation: what is accepted, and what is refused.
FITTING: list[tuple[Any, list[Any], list[Any]]] = [
    (UUID, [UUID(int=7), str(UUID(int=7))], ["not-a-uuid", 7, None, [UUID(int=7)]]),
    (datetime, [datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"], ["yesterday", date(2026, 1, 1), 7]),
    (date, [date(2026, 1, 1), "2026-01-01"], [datetime(2026, 1, 1, tzinfo=UTC), "2026"]),
    (Decimal, [Decimal("1.1"), "1.1", 1, 1.5], ["one", None]),
    (Color, [Color.RED, "red"], ["green", 1]),
    (Weight, [Weight.LIGHT, 1.5], [2.5, "light"]),
    (Line, [Line("s", datetime(2026, 1, 1, tzinfo=UTC)), {"sku": "s", "at": "2026-01-01T00:00:00Z"}],
     [{"sku": "s"}, {"sku": 7, "at": "2026-01-01T00:00:00Z"}, "s", Line(7, datetime(2026, 1, 1))]),  # type: ignore[arg-type] # noqa: DTZ001
    (Order, [Order(id=UUID(int=7), dueOn=date(2026, 1, 1)), {"id": str(UUID(int=7)), "dueOn": "2026-01-01"}],
     [{"id": str(UUID(int=7))}, "order"]),
    (Shape, [{"sides": 3}], [{"sides": "three"}, {}]),
    (Literal["a", "b"], ["a", "b"], ["c", 1]),
    (UUID | None, [UUID(int=7), None], ["x"]),
    (datetime | date | str, [date(2026, 1, 1), "tomorrow"], [7, None]),
    (float | date | UUID, [7, 1.5, date(2026, 1, 1)], ["tomorrow", [7]]),
    (list[UUID], [[], [UUID(int=7)], [str(UUID(int=7))]], [["x"], UUID(int=7), None]),
    (tuple[int, str], [(1, "a"), [1, "a"]], [(1,), ("a", 1)]),
    (dict[str, Decimal], [{"a": Decimal(1)}], [{"a": "one"}, [1]]),
    (str, ["", "a", UUID(int=7), Color.RED], [7, None, ["a"], 1.5, True]),
    (int, [7, 2**70, True, Level.LOW], ["7", 1.5, None, [7]]),
    (float, [1.5, 7, True], ["1.5", Decimal("1.5"), None]),
    (bool, [True, False], [1, 0, "true", None]),
    (None, [None], [0, ""]),
    (list, [[], [1, "a"], (1, 2)], ["a", {}, None]),
    (dict, [{}, {"a": 1}, Line("s", datetime(2026, 1, 1, tzinfo=UTC))], [[], "a"]),
    (list[int], [[], [1, True]], [["a"], [1, None], 1]),
    (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, []]),
    (typing.Dict, [{}], [[]]),  # noqa: UP006
    (list[Any], [[1, None]], [{}]),
    (int | str | None, [1, "a", None], [1.5, []]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "fitting", "wrong"), FITTING, ids=[str(each[0]) for each in FITTING])
def test_what_is_enqueued_fits_its_annotation_and_the_worker_can_build_it(
    annotation: Any, fitting: list[Any], wrong: list[Any]
) -> None:
    def handler(value: Any, other: Any = None) -> None: ...

    handler.__annotations__["value"] = annotation
    arguments = Arguments(handler)
    for value in fitting:
        arguments.decode(arguments.encode({"value": value}))
        raws = arguments.encode_many([{"value": value, "other": 1}] * 2)
        assert raws[1:] == [arguments.encode({"value": value, "other": 1})]
    for value in wrong:
        with pytest.raises(InvalidInput) as error:
            arguments.encode({"value": value})
        assert error.value.field == "value", value
        with pytest.raises(InvalidInput, match="in row 1: task 'handler' wants"):
            arguments.encode_many([{"value": fitting[0], "other": 1}, {"value": value, "other": 1}])


@given(st.data())
def test_the_worker_can_build_whatever_is_accepted(data: st.DataObject) -> None:
    annotations = [each[0] for each in FITTING]
    parts = data.draw(st.lists(st.sampled_from([each for each in annotations if isinstance(each, type)]), min_size=1))
    value = data.draw(st.sampled_from([value for each in FITTING for value in (*each[1], *each[2])]))

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = Union[tuple(parts)]  # noqa: UP007
    arguments = Arguments(handler)
    try:
        raw = arguments.encode({"value": value})
    except InvalidInput:
        return
    arguments.decode(raw)


def test_a_refusal_names_the_task_the_argument_the_type_and_what_to_do() -> None:
    def ship(order_id: UUID) -> None: ...

    with pytest.raises(InvalidInput) as error:
        Arguments(ship, "ship-order").encode({"order_id": "not-a-uuid"})
    assert str(error.value) == (
        "order_id: task 'ship-order' wants UUID, and str 'not-a-uuid' does not fit (Invalid UUID); pass UUID, or what "
        "JSON writes for one"
    )


def test_a_default_of_none_may_be_passed() -> None:
    def handler(at: datetime = None, n: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert back(handler, at=None, n=None) == {"at": None, "n": None}
    assert refused(lambda: Arguments(handler).encode({"n": "x"})) == "n"


def test_extra_names_are_checked_by_their_annotation() -> None:
    def handler(**dates: date) -> None: ...

    assert refused(lambda: Arguments(handler).encode({"a": "2026-01-01", "b": "tomorrow"})) == "b"


def test_what_is_defined_after_the_first_enqueue_is_still_built() -> None:
    names: dict[str, Any] = {"UUID": UUID}
    exec("def handler(a: 'Later', b: 'UUID') -> None: ...", names)
    arguments = Arguments(names["handler"])
    raw = arguments.encode({"a": {"x": 1}, "b": UUID(int=1)})
    assert refused(lambda: arguments.encode({"a": {"x": 1}, "b": "x"})) == "b"

    @dataclass
    class Later:
        x: int

    names["Later"] = Later
    assert arguments.decode(raw) == {"a": Later(1), "b": UUID(int=1)}


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
