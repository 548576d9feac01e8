"""The rules of a queue as one value: their one form, in JSON and back, what differs, where an option must appear."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.upgrade.next_rules import NextRules

from penstock import App
from penstock.app.inputs import Limits
from penstock.cli import change
from penstock.errors import InvalidInput, SchemaMismatch
from penstock.model import QueueRules
from penstock.model.option import Kind
from penstock.model.rules import LIVE_OPTIONS, MUST_KNOW, options_of, refuse_unknown_rules

EVERY: dict[str, Any] = {
    "order": "key", "per_key": 3, "limit": 7, "total_limit": 20, "rate": "30/m", "total_rate": "90/m",
    "per_key_rate": "100/s",
    "fair_by": "tenant", "weights": {"a": 2.0}, "on_retry": "pass", "on_dead": "halt", "max_length": 9, "max_wait": 1.5,
}  # fmt: skip


def back(rules: QueueRules, stored: dict[str, Any]) -> QueueRules:
    """As the catalogue gives them back."""
    return type(rules).from_json(json.loads(json.dumps(stored)), rules.weights, is_paused=rules.paused)


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({}, {}),
        ({"order": "key", "on_retry": "hold", "on_dead": "continue"}, {"per_key": 1, "must_know": ["per_key"]}),
        ({"per_key": 1}, {}),
        ({"run": 1}, {}),
        ({"order": "key", "run": 20}, {"per_key": 1, "run": 20, "must_know": ["per_key"]}),
        ({"rate": "30/m"}, {"rate": 0.5, "must_know": ["rate"]}),
        ({"max_wait": 2}, {"max_wait": 2.0}),
        ({"fair_by": "tenant", "weights": {"a": 1}}, {"fair_by": "tenant", "must_know": ["fair_by"]}),
    ],
)
def test_only_what_is_not_as_usual_is_stored(options: dict[str, Any], stored: dict[str, Any]) -> None:
    assert QueueRules.declared("q", **options).to_json() == stored


@pytest.mark.parametrize("options", [{}, EVERY, {"per_key_rate": "0.003/d"}, {"order": "key", "run": 1_000},
    *({name: EVERY[name]} for name in
    ("order", "per_key", "limit", "total_limit", "rate", "total_rate", "per_key_rate", "fair_by", "max_length",
     "max_wait"))])  # fmt: skip
def test_what_is_stored_comes_back_equal(options: dict[str, Any]) -> None:
    rules = QueueRules.declared("q", **options)
    assert back(rules, rules.to_json()) == rules
    assert back(replace(rules, paused=True), rules.to_json()) == replace(rules, paused=True)


def test_two_ways_to_declare_the_same_are_one_value() -> None:
    assert QueueRules.declared("q", per_key=3) == QueueRules.declared("q", order="key", per_key=3)
    assert QueueRules.declared("q", rate="60/m") == QueueRules.declared("q", rate="1/s")
    assert QueueRules(order="key") == QueueRules(per_key=1, on_retry="hold", on_dead="continue")


def test_what_this_program_does_not_know_is_carried_along_and_what_it_knows_is_its_own() -> None:
    newer = NextRules.declared("q", limit=2, burst=5, label="x").to_json()
    assert newer == {"limit": 2, "burst": 5, "label": "x", MUST_KNOW: ["burst", "limit"]}
    older = QueueRules.from_json(newer, None, is_paused=False)
    assert older == QueueRules(limit=2)
    assert older.changed("q", {"limit": None, "rate": "1/s"}).to_json(newer) == {
        "rate": 1.0, "burst": 5, "label": "x", MUST_KNOW: ["burst", "rate"],
    }  # fmt: skip


def test_a_program_refuses_a_queue_with_rules_it_must_know_and_does_not() -> None:
    stored = NextRules.declared("q", burst=5, label="x").to_json()
    assert (QueueRules.unknown_in(stored), NextRules.unknown_in(stored)) == (["burst"], [])
    with pytest.raises(SchemaMismatch, match=r"queue 'q' has rules .* must not ignore: burst; .* upgrade this program"):
        refuse_unknown_rules("q", ["burst"])
    assert QueueRules.unknown_in(NextRules.declared("q", label="x").to_json()) == []


def test_what_differs_is_told_by_its_kind() -> None:
    here = QueueRules.declared("q", order="key", limit=2, on_dead="halt")
    there = QueueRules.declared("q", fair_by="tenant", limit=3)
    assert here.contradictions(there) == {
        "order": "order='key', per_key=1 (the database has order=None)",
        "fair_by": "fair_by=None (the database has 'tenant')",
    }
    several = QueueRules.declared("q", order="key", per_key=3)
    told = "order='key', per_key=3 (the database has order='key', per_key=1)"
    assert several.contradictions(here) == {"per_key": told}
    assert here.differences(there) == [
        "limit=2 (the database has 3)", "on_dead=halt (the database has continue)",
    ]  # fmt: skip
    assert not here.contradictions(here)
    assert not here.differences(here)


def test_every_option_stands_where_users_give_it() -> None:
    options = ["order", *options_of(QueueRules)]
    assert [each.name for each in fields(QueueRules)] == [*options, "paused"]
    declared = inspect.signature(App.queue).parameters
    assert list(declared) == ["self", "name", "partitions", *options]
    assert set(Limits.__annotations__) == set(LIVE_OPTIONS)
    on_command_line = set(inspect.signature(change.limit).parameters) - {"queue", "url", "as_json"}
    assert {"limit" if name == "most" else name for name in on_command_line} == set(LIVE_OPTIONS)
    assert MUST_KNOW not in options
    live = {name for name, each in options_of(QueueRules).items() if each.kind is Kind.LIVE}
    assert live == set(LIVE_OPTIONS)


@pytest.mark.parametrize(
    ("options", "field", "text"),
    [
        ({"run": 2}, "run", "has no order that a run could keep; give order='key', or no run"),
        ({"order": "key", "per_key": 2, "run": 2}, "run", "has per_key=2; give one"),
        ({"order": "key", "run": 1_001}, "run", "give 1 to 1000"),
        ({"order": "key", "run": 0}, "run", "give 1 to 1000"),
        *(
            ({"order": "key", "run": 2, name: EVERY[name]}, name, f"give run=1, or no {name}")
            for name in ("limit", "total_limit", "rate", "total_rate", "per_key_rate")
        ),
    ],
)
def test_a_run_is_refused_where_another_rule_forbids_it(options: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text) as refused:
        QueueRules.declared("q", **options)
    assert refused.value.field == field
    if "run" in options and set(options) - {"order", "run"} and options["run"] == 2:
        # From app.limit too, whichever of the two comes second.
        ordered = QueueRules.declared("q", **{name: value for name, value in options.items() if name != "run"})
        with pytest.raises(InvalidInput, match=text):
            ordered.changed("q", {"run": 2})
    ordered = QueueRules.declared("q", order="key", run=5)
    assert (
        ordered.changed("q", {"run": None}) == ordered.changed("q", {"run": 1}) == QueueRules.declared("q", order="key")
    )


def test_a_limit_may_not_change_whether_a_queue_is_owned() -> None:
    with pytest.raises(InvalidInput, match="only rule about keys"):
        QueueRules(per_key_rate="1/s").changed("q", {"per_key_rate": None})
    with pytest.raises(InvalidInput, match="declared without a rule about keys"):
        QueueRules(limit=1).changed("q", {"per_key_rate": "1/s"})
    fair = QueueRules(fair_by="tenant")
    assert fair.changed("q", {"per_key_rate": "1/s"}).changed("q", {"per_key_rate": None}) == fair
