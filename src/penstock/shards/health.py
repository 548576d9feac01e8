"""What a shard can tell of itself and of the catalogue, and whether several fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.check import Check, checked
from penstock.shards.membership import read_digest, read_membership, read_shards
from penstock.storage.connection.database import Connection, Database
from penstock.storage.connection.queries import query

__all__ = ["CatalogueFacts", "ShardFacts", "catalogue_facts", "check_together", "shard_facts"]


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """Whether a database takes writes, how many partitions queues use there, and the jobs ready and under a lease."""

    is_read_only: bool
    partitions: int
    queued: int
    running: int


@dataclass(frozen=True, slots=True)
class CatalogueFacts:
    """What a database is among the shards, the version of its catalogue and what that says in short.

    `shards` are those the catalogue knows, each with its identity and state.
    """

    number: int
    identity: str | None
    system: str | None
    version: int
    digest: str
    shards: list[tuple[int, str, str]]

    @property
    def is_drained(self) -> bool:
        """Whether the database holds nothing any more but what ended there."""
        return any(number == self.number and state == "drained" for number, _, state in self.shards)


def catalogue_facts(connection: Connection) -> CatalogueFacts:
    """What a database says of the catalogue."""
    known = [(entry.number, entry.identity, entry.state) for entry in read_shards(connection)]
    member = read_membership(connection)
    return CatalogueFacts(*member[:3], *read_digest(connection), known)


def shard_facts(connection: Connection) -> ShardFacts:
    """How a shard is."""
    row = connection.execute(query("shard_facts")).fetchone()
    assert row is not None  # noqa: S101
    return ShardFacts(*row)


def check_together(examined: Sequence[tuple[Database, CatalogueFacts | None]]) -> list[Check]:
    """Whether databases are the shards of one system with one catalogue, by what each said of it, if it did. Of one
    that is alone there is nothing to say.
    """
    told = [(database, facts) for database, facts in examined if facts is not None]
    found = [facts for _, facts in told]
    is_alone = len(examined) == 1 and all(len(facts.shards) < 2 for facts in found)
    if is_alone or not found:
        return []
    catalogue = _catalogue(found)
    if not catalogue.ok:
        # A change may have come between the looks: look again, at the lead last, where changes commit first.
        ordered = sorted(told, key=lambda each: each[1].number, reverse=True)
        catalogue = _catalogue([database.run(catalogue_facts) for database, _ in ordered])
    return [catalogue, _shards(found)]


def _catalogue(found: Sequence[CatalogueFacts]) -> Check:
    """Whether all shards have the same catalogue."""
    lead = min(found, key=lambda facts: facts.number)
    said = ", ".join(
        f"version {facts.version} on shard {facts.number}" for facts in sorted(found, key=lambda facts: facts.number)
    )
    if any(facts.version > lead.version for facts in found):
        return Check(
            "catalogue",
            False,
            said,
            f"shard {lead.number} leads, and knows less than another: was it restored from an old backup? "
            "restore one of the time of the others",
        )
    if any(facts.version == lead.version and facts.digest != lead.digest for facts in found):
        return Check(
            "catalogue", False, f"{said}, with other contents", "one was changed by hand: restore it from its backup"
        )
    is_level = all(facts.version == lead.version for facts in found)
    return checked("catalogue", is_level, said, "run a worker, or open an app: it carries what is new to the others")


def _shards(found: Sequence[CatalogueFacts]) -> Check:
    """Whether the shards are those that the catalogue knows."""
    known = {number: identity for facts in found for number, identity, _ in facts.shards}
    drained = {number for facts in found for number, _, state in facts.shards if state == "drained"}
    systems = {facts.system for facts in found}
    strangers = [facts.number for facts in found if known.get(facts.number) != facts.identity]
    numbers = [facts.number for facts in found]
    missing = sorted(set(known) - set(numbers) - drained)
    listed = ", ".join(map(str, sorted(set(numbers))))
    if len(systems) > 1 or strangers or len(set(numbers)) < len(numbers):
        of = ", ".join(map(str, strangers or numbers))
        return Check(
            "shards",
            False,
            f"shards {listed}; not those of one system: {of}",
            "give the URLs of the databases that the catalogue knows; is one a copy of another?",
        )
    advice = f"give the URL of shard {', '.join(map(str, missing))}, or see why it does not answer"
    return checked("shards", not missing, f"shards {listed}" + ("" if missing else ": all there are"), advice)
