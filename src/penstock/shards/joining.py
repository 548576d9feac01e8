"""How databases become the shards of one system, and are known again.

A database gets its number and a random identity once. Whoever opens the system finds each again, whatever
the order of the URLs; a database that is not the one the catalogue knows under its number is refused, and so are two
catalogues that contradict each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence

from penstock.deadline import current_deadline
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, SchemaMismatch
from penstock.model.checks import MOST_SHARDS
from penstock.shards.access_tokens import level_tokens
from penstock.shards.databases import Databases
from penstock.shards.ids import read_range_number
from penstock.shards.membership import (
    Membership,
    ShardEntry,
    end_joining,
    enter_shard,
    read_digest,
    read_membership,
    read_shards,
    reserve_shard,
    take_up_shard,
)
from penstock.storage.connection.addresses import at_address, plain_address
from penstock.storage.connection.database import Database
from penstock.storage.connection.error_meaning import ConnectionLost, DatabaseDown
from penstock.storage.connection.queries import query
from penstock.storage.connection.refusals import InsufficientPrivilege

__all__ = ["add", "further_shards", "join", "meet"]

# Of several databases one may be down at the start: the others do not wait longer for it.
FIRST_CONTACT_SECONDS = 3.0


def meet(
    databases: Sequence[Database], greet: Callable[[Database, float | None, bool], object], *, must_answer: bool = False
) -> dict[Database, PartitionUnavailable]:
    """Greet each database for the first time; those that do not answer, with what became of it.

    `greet` is told how long that may take, and whether to wait for one that is down. That is so for an only one, and
    where all `must_answer`: then what it raises is raised.
    """
    waits = must_answer or len(databases) == 1
    silent: dict[Database, PartitionUnavailable] = {}
    for database in databases:
        try:
            greet(database, None if waits else _first_contact_seconds(database, len(databases)), waits)
        except PartitionUnavailable as error:
            if waits:
                raise
            silent[database] = error
    return silent


def _first_contact_seconds(database: Database, databases: int) -> float:
    """So long one of several databases is waited for at first: all of them, and the call itself, have to have time."""
    call = current_deadline()
    left = database.request_timeout if call is None else max(call.left(), 0.0)
    return min(FIRST_CONTACT_SECONDS, left / (databases + 1))


def join(databases: Sequence[Database], silent: Collection[Database], *, are_ours: bool = False) -> Databases:
    """The databases as shards, each under its number; the silent ones are recognised by their address.

    An address in the catalogue stays and further shards have to be added, unless the databases are embedded ones, which
    are known to be where these URLs say and to be meant (`are_ours`).
    """
    present = [database for database in databases if database not in silent]
    if not present:
        first = next(iter(silent))
        raise first.unavailable(DatabaseDown(first.breaker.reason or "no shard answers"))
    known = {database: database.run(read_membership) for database in present}
    further: list[Database] = []
    if any(member.identity is None for member in known.values()):
        if are_ours and any(member.identity and database.run(read_shards) for database, member in known.items()):
            further = [database for database, member in known.items() if member.identity is None]
            databases = [database for database in databases if database not in further]
            known = {database: member for database, member in known.items() if database not in further}
        else:
            known = _take_up(databases, silent, known)
    _refuse_strangers(known)
    newest = max(known, key=lambda database: known[database].version)
    entries = {entry.number: entry for entry in newest.run(read_shards)}
    for database, member in known.items():
        _refuse_replaced(database, member, entries.get(member.number))
        database.join(member.number, is_alone=len(entries) < 2 and len(databases) == 1)
    for database in silent:
        address = plain_address(database.url)
        number = next((entry.number for entry in entries.values() if entry.address == address), None)
        if number is None:
            raise PartitionUnavailable(
                f"the database at {database.address} does not answer, and no shard is known by that address "
                f"({', '.join(f'{entry.number}: {entry.address}' for entry in entries.values())}); "
                "check the URL, or start again when it answers"
            )
        database.join(number, is_alone=False)
    joined = Databases(databases, are_embedded=are_ours)
    joined.note_drained([entry.number for entry in entries.values() if entry.state == "drained"])
    if len(databases) > 1 and joined.lead in known:
        _enter(joined, known, {} if are_ours else entries)
        joined.level()
        _refuse_contradictions(joined)
    for database in further:
        add(joined, database, is_embedded=True)
    return joined


def further_shards(databases: Databases, open_database: Callable[[str], Database]) -> list[Database]:
    """The shards that the catalogue knows and the app does not have yet, by their addresses in it."""
    entries = databases.read(read_shards)
    databases.note_drained([entry.number for entry in entries if entry.state == "drained"])
    found = []
    for entry in entries:
        if entry.number not in databases and entry.state in ("active", "draining"):
            database = open_database(at_address(entry.address, databases.lead.url))
            database.join(entry.number, is_alone=False)
            found.append(database)
    return found


def add(databases: Databases, database: Database, *, is_embedded: bool = False) -> int:
    """Make a migrated, empty database a further shard; its number. Killed anywhere, it can be done again.

    It gets its number on the lead first, then is told who it is, and only then is anything placed on it.
    """
    known, address = database.run(read_membership), plain_address(database.url)
    ours = databases.lead.run(read_membership)
    if known.identity is not None and known.system != ours.system:
        raise InvalidInput("url", f"the database at {database.address} belongs to another system; give an empty one")
    entries = {entry.number: entry for entry in databases.lead.run(read_shards)}
    if known.identity is not None and known.number in entries and entries[known.number].state == "drained":
        raise InvalidInput(
            "url", f"the database at {database.address} was drained as shard {known.number}; give an empty one"
        )
    if known.number in databases and known.number in entries and known.identity == entries[known.number].identity:
        return known.number
    if not is_embedded:
        _refuse_unreachable(databases, database)
    if not entries:
        # A shard that was alone was not entered yet.
        _enter(databases, {databases.lead: ours}, {})
    if known.identity is None:
        system = ours.system or ""
        number, identity = databases.lead.run(lambda c: reserve_shard(c, str(uuid.uuid4()), address))
        newest = max(databases.each(read_range_number))
        database.run(lambda c: take_up_shard(c, number, identity, system))
        database.run(lambda c: c.execute(query("start_ranges_after"), {"range": newest}))
        known = database.run(read_membership)
    _refuse_replaced(database, known, entries.get(known.number))
    database.join(known.number, is_alone=False)
    databases.add(database)
    databases.level()
    level_tokens(databases)
    databases.change(lambda c: end_joining(c, known.number))
    return known.number


def _refuse_unreachable(databases: Databases, database: Database) -> None:
    """Programs that run find a shard by its address and come with the credentials they have."""
    try:
        Database(
            at_address(plain_address(database.url), databases.lead.url), request_timeout=database.request_timeout
        ).connect().close()
    except ConnectionLost as error:
        raise InvalidInput(
            "url",
            f"the database at {database.address} cannot be reached with the role and password of shard "
            f"{databases.lead.shard}, as running programs would ({str(error).strip().splitlines()[0]}); "
            "give it the same",
        ) from None


def _take_up(
    databases: Sequence[Database], silent: Collection[Database], known: dict[Database, Membership]
) -> dict[Database, Membership]:
    """Give numbers to the databases of a new system, or to those that join one that was alone."""
    if silent and all(member.identity is None for member in known.values()):
        raise PartitionUnavailable(
            f"the database at {next(iter(silent)).address} does not answer; "
            "a new system is set up when all its shards do: start again then"
        )
    first = min(known, key=lambda database: (known[database].identity is None, databases.index(database)))
    if known[first].identity is None:
        _try_taking_up(first, 1, str(uuid.uuid4()), is_alone=len(databases) == 1)
        known[first] = first.run(read_membership)
    system = known[first].system
    if system is None:
        return known
    is_set_up = bool(first.run(read_shards))
    taken = {member.number for member in known.values() if member.identity is not None}
    for database in databases:
        if database in known and known[database].identity is None:
            if is_set_up:
                # Another program that starts at this moment may have set it up: it has numbered all by then.
                known[database] = database.run(read_membership)
                if known[database].identity is not None:
                    continue
                raise InvalidInput(
                    "shards",
                    f"the database at {database.address} is no shard of this system yet: "
                    "add it with app.add_shard(url), or `penstock shards add URL`",
                )
            number = next(number for number in range(1, MOST_SHARDS + 1) if number not in taken)
            _try_taking_up(database, number, system, is_alone=False)
            known[database] = database.run(read_membership)
            taken.add(number)
    return known


def _try_taking_up(database: Database, number: int, system: str, *, is_alone: bool) -> None:
    try:
        database.run(lambda connection: take_up_shard(connection, number, str(uuid.uuid4()), system))
    except InsufficientPrivilege:
        # Whoever may only read needs no number where there is no other shard.
        if not is_alone:
            raise PenstockError(
                f"the database at {database.address} is no shard yet, and this role may not make it one: "
                "call app.migrate(), or run `penstock migrate`, as the owner of the schema"
            ) from None


def _refuse_strangers(known: dict[Database, Membership]) -> None:
    systems = {member.system: database for database, member in known.items()}
    if len(systems) > 1:
        one, other = list(systems.values())[:2]
        raise SchemaMismatch(
            f"the databases at {one.address} and {other.address} belong to different systems: "
            "give the shards of one system, or a database without queues for a new shard"
        )
    by_number: dict[int, Database] = {}
    for database, member in known.items():
        other_one = by_number.setdefault(member.number, database)
        if other_one is not database:
            raise SchemaMismatch(
                f"the databases at {other_one.address} and {database.address} are both shard {member.number}: "
                "is one a copy of the other? give each shard once"
            )


def _refuse_replaced(database: Database, member: Membership, entry: ShardEntry | None) -> None:
    if entry is not None and entry.identity != member.identity:
        raise SchemaMismatch(
            f"the database at {database.address} is not the one that the catalogue knows as shard {member.number}: "
            "give the URL of that one; a lost shard is brought back from its backup (see the runbook for a lost shard)"
        )


def _enter(databases: Databases, known: dict[Database, Membership], entries: dict[int, ShardEntry]) -> None:
    for database, member in known.items():
        if member.number not in entries and member.identity is not None:
            number, name, address = member.number, member.identity, plain_address(database.url)
            databases.lead.run(lambda c: enter_shard(c, number, name, address))  # noqa: B023


def _refuse_contradictions(databases: Databases) -> None:
    told = databases.each(read_digest, timeout=3.0)
    versions = dict.fromkeys(version for version, _ in told)
    for version in versions:
        digests = {number: digest for number, (other, digest) in told.given.items() if other == version}
        if len(set(digests.values())) > 1:
            raise SchemaMismatch(
                f"the catalogues of shards {', '.join(map(str, sorted(digests)))} contradict each other at version "
                f"{version}: one was changed behind the others' back; restore it from a backup of the same time"
            )
