"""The rules of a queue: what holds, and a form for those that can be changed while it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import InvalidInput
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import Given, View
from penstock.server.values import decode_body

__all__ = ["LIVE_RULES", "queue_rules", "read_rules"]

queue_rules = Pages()
EXAMPLE = '{"acme": 3}'


class LiveRule(NamedTuple):
    """A rule that can be changed: what it is called, how it is read, and what it means."""

    name: str
    title: str
    kind: str
    means: str


LIVE_RULES = (
    LiveRule("limit", "Limit", "count", "so many run at once in each partition"),
    LiveRule("total_limit", "Total limit", "count", "so many run at once in all partitions together"),
    LiveRule("rate", "Rate", "rate", "so many start in each partition: 100/s, 30/m, 10/h, 1/d"),
    LiveRule("total_rate", "Total rate", "rate", "so many start in all partitions together, as above"),
    LiveRule("per_key_rate", "Rate of a key", "rate", "so many jobs of each key start: 100/s, 30/m, 10/h, 1/d"),
    LiveRule("run", "Run", "count", "so many jobs of a key in one go"),
    LiveRule("max_length", "Most waiting", "count", "an enqueue is refused where a partition has so many ready"),
    LiveRule("max_wait", "Longest wait", "seconds", "a job that waited for so long expires: seconds, or 15m, 2h, 1d"),
    LiveRule("weights", "Weights", "json", f"shares of tenants where they are not even, as {EXAMPLE}"),
)


@queue_rules.show("/queues/{queue}/rules")
def show_rules(view: View, queue: str) -> Shown:
    """What holds for it."""
    return _page(view, queue)


@queue_rules.act("/queues/{queue}/rules")
def change_rules(view: View, queue: str) -> Done | Shown:
    """Change the limits that stand otherwise in the form; an empty one is taken away."""
    typed = {rule.name: view.form.text(rule.name) or "" for rule in LIVE_RULES}
    before = {rule.name: view.form.text(f"before_{rule.name}") or "" for rule in LIVE_RULES}
    changed = {name for name, text in typed.items() if text.strip() != before[name].strip()}
    if not changed:
        return Done(view.url("queues", queue, "rules"), "Nothing was changed: the form is as it was.")
    try:
        view.api.send("POST", "queues", queue, "limit", body=read_rules(view.form, changed))
    except InvalidInput as error:
        return _page(view, queue, typed, before, error)
    said = ", ".join(
        f"{rule.title.lower()} {typed[rule.name] or 'none'}" for rule in LIVE_RULES if rule.name in changed
    )
    return Done(view.url("queues", queue, "rules"), f"{queue} has {said} now; every worker goes by it within a second.")


def read_rules(form: Given, names: set[str]) -> dict[str, Any]:
    """These limits as the API takes them; None takes one away."""
    return {rule.name: _read(form, rule) for rule in LIVE_RULES if rule.name in names}


def _page(
    view: View,
    queue: str,
    typed: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
    error: InvalidInput | None = None,
) -> Shown:
    stats = view.api.get("queues", queue, "stats")
    now = {rule.name: _written(getattr(stats.rules, rule.name), rule.kind) for rule in LIVE_RULES}
    return Shown(
        "queue_rules.html",
        f"Rules of {stats.queue}",
        {
            "stats": stats,
            "live_rules": [rule for rule in LIVE_RULES if _is_for(rule.name, stats.rules)],
            "now": now,
            # As the form had it when it was opened: only what was changed there is sent.
            "before": before or now,
            "typed": typed or now,
            "error": error,
        },
        200 if error is None else 422,
        is_live=False,
    )


def _is_for(name: str, rules: Any) -> bool:
    """Whether a queue that keeps these rules for its life can have that limit: any other would be refused."""
    match name:
        case "per_key_rate":
            return rules.per_key is not None or rules.per_key_rate is not None
        case "run":
            return bool(rules.per_key == 1)
        case "weights":
            return rules.fair_by is not None
    return True


def _read(form: Given, rule: LiveRule) -> Any:
    if rule.kind == "count":
        return form.number(rule.name)
    if rule.kind == "seconds":
        return form.seconds(rule.name)
    text = (form.text(rule.name) or "").strip()
    if not text or rule.kind == "rate":
        return text or None
    try:
        return decode_body(text.encode(), dict[str, float])
    except InvalidInput as error:
        raise InvalidInput(rule.name, f"{error.problem}; write {EXAMPLE}, or leave it empty") from None


def _written(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if kind == "json":
        return json.dumps({name: _whole(weight) for name, weight in value.items()}, ensure_ascii=False)
    return str(_whole(value))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
