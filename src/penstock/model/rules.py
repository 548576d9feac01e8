"""The rules of a queue: one value, from what an app declares to what the owner of a partition goes by.

Each option is one field here, and says once how it is checked, what follows where two programs declare it differently
(`Kind`), and whether a program that has never heard of it may work on the queue all the same. The catalogue holds the
value as one JSON object of what is not as usual; `to_json` and `from_json` are the only way there and back. What a
newer program has written there and this one does not know is kept as it is.

Three kinds of queue follow from it. A plain queue has no rule: any worker takes any job. A gated one has a limit or a
rate, of each partition or in all: each claim counts first. An owned one has a rule about keys or tenants: each of its
partitions is decided by one worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, Self

from penstock.errors import InvalidInput, SchemaMismatch
from penstock.model.checks import MOST_RUNNING, checked_choice, checked_count, checked_seconds, checked_weights
from penstock.model.option import Kind, Option, choice_option, option, rate_option
from penstock.model.rate import starts_a_second

__all__ = ["LIVE_OPTIONS", "MUST_KNOW", "QueueRules", "options_of", "refuse_unknown_rules"]

# So many jobs of a key are leased together at most.
LONGEST_RUN = 1_000
# With these the jobs of a key are not taken one after the other by one slot: `run` is refused beside them.
NOT_WITH_RUN = ("limit", "total_limit", "rate", "total_rate", "per_key_rate")
# Beside the options in the stored object: the names of those that a program must know to work on the queue.
MUST_KNOW = "must_know"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What holds for a queue now, wherever it was declared: the options of `app.queue`, and whether it is paused.

    None: there is no such rule; `per_key` is a number where the queue has an order, and `on_retry` and `on_dead` are
    told where it has a rule about keys.
    """

    order: Literal["key"] | None = None
    per_key: int | None = option(Kind.STRUCTURAL, partial(checked_count, most=MOST_RUNNING))
    run: int | None = option(Kind.LIVE, partial(checked_count, most=LONGEST_RUN), may_be_ignored=True, usual=1)
    limit: int | None = option(Kind.LIVE, partial(checked_count, most=MOST_RUNNING))
    total_limit: int | None = option(Kind.LIVE, partial(checked_count, most=MOST_RUNNING))
    rate: str | None = rate_option(Kind.LIVE)
    total_rate: str | None = rate_option(Kind.LIVE)
    per_key_rate: str | None = rate_option(Kind.LIVE)
    fair_by: Literal["tenant"] | None = choice_option(Kind.STRUCTURAL, "tenant")
    weights: Mapping[str, float] | None = option(Kind.LIVE, checked_weights, may_be_ignored=True, is_apart=True)
    on_retry: Literal["hold", "pass"] | None = choice_option(Kind.LOGGED, "hold", "pass", usual="hold")
    on_dead: Literal["continue", "halt"] | None = choice_option(Kind.LOGGED, "continue", "halt", usual="continue")
    max_length: int | None = option(Kind.LIVE, checked_count)
    max_wait: float | None = option(Kind.LIVE, checked_seconds, may_be_ignored=True, read=float)
    paused: bool = False

    def __post_init__(self) -> None:
        """Of two ways to write the same rules one is kept."""
        if self.order is not None and self.per_key is None:
            object.__setattr__(self, "per_key", 1)
        object.__setattr__(self, "order", None if self.per_key is None else "key")
        options = options_of(type(self))
        if self.run in (None, 1):
            object.__setattr__(self, "run", None if self.per_key is None else 1)
        for name in ("on_retry", "on_dead"):
            usual = options[name].usual
            if getattr(self, name) in (None, usual):
                object.__setattr__(self, name, usual if self.has_key_rule else None)

    @classmethod
    def declared(cls, queue: str, *, order: object = None, per_key: object = 1, **given: Any) -> Self:
        """The rules of a queue as `app.queue` is given them; `InvalidInput` for those that cannot be."""
        checked_choice("order", order, (None, "key"))
        running = checked_count("per_key", per_key, most=MOST_RUNNING)
        given["per_key"] = running if order is not None or running != 1 else None
        about_keys = [name for name in ("on_retry", "on_dead") if given.get(name) is not None]
        rules = cls(**cls._checked({name: value for name, value in given.items() if value is not None}))
        if rules.weights is not None and not rules.is_fair:
            raise InvalidInput("weights", f"queue {queue!r} shares by nothing; give fair_by='tenant', or no weights")
        for name in about_keys:
            if not rules.has_key_rule:
                raise InvalidInput(
                    name,
                    f"{given[name]!r} is about keys, and queue {queue!r} has no rule about them; "
                    f"give order='key', per_key or per_key_rate, or leave {name} out",
                )
        rules._refuse_run(queue)
        return rules

    def changed(self, queue: str, given: Mapping[str, Any]) -> Self:
        """The rules with other limits; `InvalidInput` where they cannot be."""
        rules = replace(self, **self._checked(given))
        if self.is_owned and not rules.is_owned:
            raise InvalidInput(
                "per_key_rate", f"it is queue {queue!r}'s only rule about keys, which stays; give a rate, as '1/s'"
            )
        if rules.is_owned and not self.is_owned:
            raise InvalidInput(
                "per_key_rate",
                f"queue {queue!r} was declared without a rule about keys or tenants, so that any worker takes any "
                "of its jobs; declare another queue with per_key_rate",
            )
        if rules.weights is not None and not rules.is_fair:
            raise InvalidInput(
                "weights",
                f"queue {queue!r} was declared without fair_by, which weights are for, and that stays; "
                "declare a queue of another name with fair_by='tenant'",
            )
        rules._refuse_run(queue)
        return rules

    def _refuse_run(self, queue: str) -> None:
        """Raise `InvalidInput` where jobs of a key are to follow each other in a run, and another rule forbids it."""
        if not self.has_runs:
            return
        if self.per_key is None:
            raise InvalidInput(
                "run", f"queue {queue!r} has no order that a run could keep; give order='key', or no run"
            )
        if self.per_key > 1:
            raise InvalidInput(
                "run", f"a run has one job of a key at a time, and queue {queue!r} has per_key={self.per_key}; give one"
            )
        for name in NOT_WITH_RUN:
            if getattr(self, name) is not None:
                raise InvalidInput(
                    name, f"it counts each start, and queue {queue!r} has run={self.run}; give run=1, or no {name}"
                )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], weights: Mapping[str, float] | None, *, is_paused: bool) -> Self:
        """The rules as the catalogue has them, without what this program does not know."""
        options = options_of(cls)
        known = {name: options[name].read(value) for name, value in stored.items() if name in options}
        return cls(**known, weights=weights, paused=is_paused)

    @classmethod
    def unknown_in(cls, stored: Mapping[str, Any]) -> list[str]:
        """The options a queue has that a program must know to work on it, and that this one does not know."""
        return [name for name in stored.get(MUST_KNOW, ()) if name not in options_of(cls)]

    def to_json(self, stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The rules as the catalogue holds them, over what it had before: what nobody here knows stays as it was."""
        before, options = stored or {}, options_of(type(self))
        written = {
            name: each.write(value)
            for name, each in options.items()
            if not each.is_apart and (value := getattr(self, name)) not in (None, each.usual)
        }
        unknown = {name: value for name, value in before.items() if name not in options and name != MUST_KNOW}
        must_know = [name for name in before.get(MUST_KNOW, ()) if name not in options]
        must_know += [name for name in written if not options[name].may_be_ignored]
        return {**unknown, **written, **({MUST_KNOW: sorted(must_know)} if must_know else {})}

    def contradictions(self, stored: QueueRules) -> dict[str, str]:
        """By option, what a declaration says otherwise about how jobs are kept: it is refused."""
        found: dict[str, str] = {}
        for name, here, there in self._differing(stored, (Kind.STRUCTURAL,)):
            if name == "per_key":
                name, here, there = "per_key" if here and there else "order", _order_text(here), _order_text(there)
            else:
                here, there = f"{name}={here!r}", repr(there)
            found[name] = f"{here} (the database has {there})"
        return found

    def fixed_differences(self, given: Mapping[str, Any]) -> list[str]:
        """The options among these that stay as the queue was declared, and were given otherwise."""
        options, order = options_of(type(self)), given.get("order", self.order)
        checked_choice("order", order, (None, "key"))
        found = ["order"] if order != self.order else []
        for name, value in given.items():
            if name not in options or options[name].kind is Kind.LIVE:
                continue
            usual = 1 if name == "per_key" else options[name].usual
            here = usual if value is None else options[name].check(name, value)
            if here != (usual if getattr(self, name) is None else getattr(self, name)):
                found.append(name)
        return found

    def differences(self, stored: QueueRules) -> list[str]:
        """What else a declaration says otherwise than the database, whose word counts.

        What it leaves as usual it says nothing about: a producer may name a queue and not its limits.
        """
        options = options_of(type(self))
        differing = self._differing(stored, (Kind.LIVE, Kind.LOGGED))
        return [
            f"{name}={here} (the database has {there})"
            for name, here, there in differing
            if here != options[name].usual
        ]

    def _differing(self, stored: QueueRules, kinds: Collection[Kind]) -> Iterator[tuple[str, Any, Any]]:
        for name, each in options_of(type(self)).items():
            here, there = (
                each.usual if value is None else value for value in (getattr(self, name), getattr(stored, name))
            )
            if each.kind in kinds and here != there:
                yield name, here, there

    @classmethod
    def _checked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Each as it is kept; None: as usual."""
        options = options_of(cls)
        return {
            name: options[name].usual if value is None else options[name].check(name, value)
            for name, value in given.items()
        }

    def most_running(self, partitions: int) -> int | None:
        """How many may run in so many partitions together; None: any number."""
        bounds = [self.total_limit, None if self.limit is None else self.limit * partitions]
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def starts_a_second(self) -> float | None:
        """The rate, as a number."""
        return None if self.rate is None else starts_a_second(self.rate)

    @property
    def starts_of_key_a_second(self) -> float | None:
        """The rate of each key, as a number."""
        return None if self.per_key_rate is None else starts_a_second(self.per_key_rate)

    @property
    def has_key_rule(self) -> bool:
        """Whether keys mean anything to this queue beyond where a job goes."""
        return self.per_key is not None or self.per_key_rate is not None

    @property
    def has_runs(self) -> bool:
        """Whether several jobs of a key may be leased together, to run one after the other."""
        return self.run is not None and self.run > 1

    @property
    def is_fair(self) -> bool:
        """Whether starts are shared between tenants."""
        return self.fair_by is not None

    @property
    def is_owned(self) -> bool:
        """Whether each of its partitions is decided by one worker."""
        return self.has_key_rule or self.is_fair

    @property
    def holds_on_retry(self) -> bool:
        """Whether a key waits for the retry of its job."""
        return self.has_key_rule and self.on_retry == "hold"

    @property
    def halts_on_dead(self) -> bool:
        """Whether a key whose job ran out of attempts waits for a person."""
        return self.on_dead == "halt"


def options_of(rules: type[QueueRules]) -> dict[str, Option]:
    """The options that are stored, by name, in the order of the fields."""
    return {each.name: each.metadata["option"] for each in fields(rules) if "option" in each.metadata}


# What `app.limit` changes; the rest of a queue's options stays as it was declared, `partitions` aside.
LIVE_OPTIONS = tuple(name for name, each in options_of(QueueRules).items() if each.kind is Kind.LIVE)


def refuse_unknown_rules(queue: str, unknown: Collection[str]) -> None:
    """Raise `SchemaMismatch` where there are any: it is the program that is too old, not a value that is wrong."""
    if unknown:
        raise SchemaMismatch(
            f"queue {queue!r} has rules that this program does not know and must not ignore: {', '.join(unknown)}; "
            "a newer Penstock gave them to it: upgrade this program"
        )


def _order_text(per_key: int | None) -> str:
    return "order=None" if per_key is None else f"order='key', per_key={per_key}"
