"""A worker's turn with the database: settle what ended and claim what comes next, in one transaction and one round
trip, so that a freed slot is taken again in the same commit that frees it.

A turn that is refused for what is in it (SQLSTATE classes 22 and 23, damaged data) is repeated in ever smaller pieces,
down to the end that is refused alone: that job is set aside, and costs neither the worker nor the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec

from penstock.clock import system
from penstock.storage.connection.arrays import array_text
from penstock.storage.connection.database import Connection
from penstock.storage.connection.error_meaning import DatabaseError, first_line, is_about_data
from penstock.storage.connection.one_transaction import one_transaction
from penstock.storage.connection.queries import query
from penstock.storage.work.leases import Lease
from penstock.storage.work.owner import ChosenJobs, lease_parameters
from penstock.storage.work.remote_workers import PollRecord, RemoteTurn, read_poll, record_of
from penstock.storage.work.set_aside import set_ends_aside
from penstock.storage.work.settle import RETURNING, End, Succeeded, succeeded_parameters

__all__ = ["FROM_THE_START", "ClaimWish", "Turn", "exchange", "held_leases", "settled_by"]


log = logging.getLogger("penstock")

FEW_ENDED = 64
# The `pos` from which the first claim of a partition looks, one a priority: before all rows. What was carried from
# another shard stands before what was written here, and has a negative one (`carried_pos` in 06_order_encodings.sql).
FROM_THE_START = (-(1 << 62),) * 10


@dataclass(slots=True)
class ClaimWish:
    """What a worker would take: from which partitions, in the order to try, and how much.

    The partitions are those between each of `firsts` and its counterpart in `lasts`, by number.
    """

    firsts: Sequence[int]
    lasts: Sequence[int]
    slots: int
    ahead: int
    # Whether the worker holds a job that was rescued twice: until it has ended, it is given no second one.
    has_suspect: bool = False
    # By queue, how many more of its jobs may be taken, where the worker has caps.
    caps: Mapping[int, int] | None = None
    # By queue and task, as JSON: how many jobs a handler is given together, and how many seconds they wait for more.
    batch_sizes: str | None = None
    # Partitions that much was taken from: ten for each, one a priority, the `pos` from which ready rows are looked for.
    starts: Mapping[int, Sequence[int]] | None = None


@dataclass(slots=True)
class Turn:
    """What came of a turn: pairs (lease, position) that were not held any more, children of what ended, new leases."""

    not_held: list[tuple[int, int]] = field(default_factory=list)
    # Pairs (lease, position) that were set aside, since their end could not be written.
    aside: list[tuple[int, int]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    # Seconds until a rate lets more start, where the rate is what kept the claim from more.
    opens_in: float | None = None
    # The leases on chosen jobs; none in partitions that are not their owner's any more, or have fewer permits
    # or tokens than jobs were chosen.
    chosen: list[Lease] = field(default_factory=list)
    short_of_permits: set[int] = field(default_factory=set)
    # Whose turn it was, and so whose leases these are.
    holder: int = 0
    # What is kept of the poll that it was a part of, where it was a remote worker's.
    record: PollRecord | None = None

    @property
    def unsettled(self) -> list[tuple[int, int]]:
        """What did not end as the worker said."""
        return self.not_held + self.aside


def exchange(
    connection: Connection,
    worker: int,
    name: str,
    succeeded: Sequence[Succeeded],
    ends: Sequence[End],
    wish: ClaimWish | None,
    choices: Sequence[ChosenJobs] = (),
    freed: Sequence[int] = (),
    number: int | None = None,
    remote: RemoteTurn | None = None,
) -> Turn:
    """Settle and claim. Nothing is done twice if it is repeated: what was settled before is simply not held.

    `freed` are partitions with a limit in which this ends jobs: what it does not claim there is offered to others.
    `number` is what the worker's turns bear behind a pooler, or where others may act for it after this program
    (`penstock.storage.connection.sessions`). `remote` says which poll of a remote worker it is a part of.
    """
    if remote is not None:
        return _exchange_for_remote(connection, worker, name, succeeded, ends, wish, choices, freed, remote)
    try:
        if _is_of_one(worker, succeeded, ends, wish, choices, freed, number):
            turn = _exchange_one(connection, worker, name, succeeded[0], choices[0])
            if turn is not None:
                return turn
        return _exchange(connection, worker, name, succeeded, ends, wish, choices, freed, number=number)
    except DatabaseError as error:
        if not is_about_data(error):
            raise
        log.warning("a turn was refused and is repeated piece by piece: %s", first_line(error))
    turn = Turn()
    units: list[Succeeded | End] = [*(replace(each, is_whole=False) for each in succeeded), *ends]
    _settle_in_pieces(connection, worker, name, units, turn)
    for claim in ("claim", "claim_unread"):
        try:
            claimed = _exchange(connection, worker, name, (), (), wish, choices, freed, number=number, claim=claim)
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            log.warning("a claim was refused: %s", first_line(error))
        else:
            claimed.not_held, claimed.aside, claimed.children = turn.not_held, turn.aside, turn.children
            return claimed
    return turn


def _is_of_one(
    worker: int,
    succeeded: Sequence[Succeeded],
    ends: Sequence[End],
    wish: ClaimWish | None,
    choices: Sequence[ChosenJobs],
    freed: Sequence[int],
    number: int | None,
) -> bool:
    """Whether it is a turn of a key whose jobs run one by one: one that was alone has succeeded, the next follows."""
    if len(succeeded) != 1 or len(choices) != 1 or ends or freed or wish is not None or number is not None:
        return False
    done, choice = succeeded[0], choices[0]
    return (
        done.is_whole
        and len(done.positions) == 1
        and len(choice.jobs) == 1
        and choice.owner == worker
        and not choice.has_batches
        and not choice.is_counted
    )


def _exchange_one(connection: Connection, worker: int, name: str, done: Succeeded, choice: ChosenJobs) -> Turn | None:
    """The same for one job that ended and one that follows, at less cost; None where nothing was done, as something
    is not as usual.
    """
    token = system.random_token()
    (job,), ((range_, _, is_ahead, _),) = choice.jobs, choice.members
    result = None if done.results is None else done.results[0]
    with one_transaction(connection, is_one_statement=True):
        answer = connection.execute(
            query("turn_of_one"),
            {
                "worker": worker,
                "name": name,
                "lease": done.lease,
                "lease_token": done.token,
                "ended": done.range * 1024 + done.positions[0],
                "age": done.ages[0],
                "run": done.runs[0],
                "result": None if result is None else result.decode(),
                "token": token,
                "server": choice.server,
                "partition": choice.partition_id,
                "owner_epoch": choice.owner_epoch,
                "job": job,
                "is_ahead": is_ahead,
            },
        )
    row = answer.fetchone()
    if row is None:
        return None
    lease_id, priority, pos, attempt, rescues, task, waited, children = row
    position = job % 1024
    lease = Lease(
        *(lease_id, choice.partition_id, priority, pos, range_, position, position + 1, None, attempt, rescues),
        is_ahead=is_ahead,
        task=task,
        waited_seconds=waited,
        token=token,
    )
    return Turn(children=children, chosen=[lease], holder=worker)


def _exchange_for_remote(
    connection: Connection,
    worker: int,
    name: str,
    succeeded: Sequence[Succeeded],
    ends: Sequence[End],
    wish: ClaimWish | None,
    choices: Sequence[ChosenJobs],
    freed: Sequence[int],
    remote: RemoteTurn,
) -> Turn:
    """The same as a part of a poll: all of it is one transaction, in which the poll's record is written, too. A turn
    that does nothing is not sent: nobody would see whose poll it is by now.
    """
    if remote.opening is None and wish is None and not choices and not remote.is_last:
        return Turn(holder=worker)
    try:
        return _exchange(connection, worker, name, succeeded, ends, wish, choices, freed, remote=remote)
    except DatabaseError as error:
        if not is_about_data(error) or remote.opening is None:
            raise
        log.warning("a turn was refused and is repeated piece by piece: %s", first_line(error))
    turn = Turn(holder=worker)
    units: list[Succeeded | End] = [*(replace(each, is_whole=False) for each in succeeded), *ends]
    with connection.transaction():
        remote.begin(connection)
        _settle_in_pieces(connection, worker, name, units, turn, connection.transaction)
        if freed:
            connection.execute(query("wake_gates"), {"freed": array_text(freed)})
        remote.end(connection, takes=False)
        turn.record = read_poll(connection, remote.remote)
    return turn


def _settle_in_pieces(
    connection: Connection,
    worker: int,
    name: str,
    units: Sequence[Succeeded | End],
    turn: Turn,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Settle these ends, by halves where they are refused; what came of it is added to the turn. `within`: what each
    piece is done in, where all of them are one transaction.
    """
    if not units:
        return
    succeeded = [unit for unit in units if isinstance(unit, Succeeded)]
    ends = [unit for unit in units if isinstance(unit, End)]
    try:
        with within():
            done = _exchange(connection, worker, name, succeeded, ends, None)
    except DatabaseError as error:
        if not is_about_data(error):
            raise
        if len(units) == 1 and succeeded and len(succeeded[0].positions) > 1:
            units = succeeded[0].one_by_one()
        if len(units) > 1:
            half = len(units) // 2
            _settle_in_pieces(connection, worker, name, units[:half], turn, within)
            _settle_in_pieces(connection, worker, name, units[half:], turn, within)
            return
        end = (
            ends[0]
            if ends
            else End(succeeded[0].lease, succeeded[0].token, succeeded[0].positions[0], succeeded[0].range, "release")
        )
        turn.aside.append((end.lease, end.position))
        reason = f"its end ({end.end if ends else 'succeeded'}) cannot be written: {first_line(error)}"
        try:
            with within():
                set_ends_aside(connection, worker, name, [end], [reason])
        except DatabaseError as again:
            if not is_about_data(again):
                raise
            # It stays under its lease, and is set aside when it is rescued.
            log.exception(
                "job %d: %s; nor can it be set aside", end.range * 1024 + end.position, reason, exc_info=again
            )
    else:
        turn.not_held += done.not_held
        turn.children += done.children


def _exchange(
    connection: Connection,
    worker: int,
    name: str,
    succeeded: Sequence[Succeeded],
    ends: Sequence[End],
    wish: ClaimWish | None,
    choices: Sequence[ChosenJobs] = (),
    freed: Sequence[int] = (),
    *,
    number: int | None = None,
    claim: str = "claim",
    remote: RemoteTurn | None = None,
) -> Turn:
    settled, others, children, claimed, chosen, record = None, None, None, None, None, None
    token = system.random_token()
    is_one_statement = not (succeeded or ends or choices or number is not None or remote is not None)
    fence: dict[str, Any] = {}
    if remote is not None:
        fence = {**remote.fence, "is_last": remote.is_last}
    with one_transaction(connection, is_one_statement=is_one_statement):
        if remote is not None:
            remote.begin(connection)
        if number is not None:
            connection.execute(query("lock_turn"), {"worker": worker, "number": number})
        if succeeded:
            settled = connection.execute(
                query("settle_succeeded_if_leased"), succeeded_parameters(worker, name, succeeded)
            )
        if ends:
            others = connection.execute(
                query("settle_ended_if_leased"),
                {"worker": worker, "name": name, "ends": msgspec.json.encode(ends).decode()},
            )
        if succeeded or ends:
            # Children of few jobs are looked up job by job; of many, by walking through all children of their ranges.
            if sum(len(each.positions) for each in succeeded) + len(ends) <= FEW_ENDED:
                parents = array_text(_list_final(succeeded, ends))
                children = connection.execute(query("children_of_jobs"), {"parents": parents})
            else:
                ranges = array_text({each.range for each in succeeded} | {each.range for each in ends})
                children = connection.execute(query("children_of_ranges"), {"ranges": ranges})
        if wish is not None:
            claimed = connection.execute(
                query(claim if remote is None else "claim_for_remote"),
                fence
                | {
                    "worker": worker,
                    "token": token,
                    "firsts": array_text(wish.firsts),
                    "lasts": array_text(wish.lasts),
                    "slots": wish.slots,
                    "ahead": wish.ahead,
                    "has_suspect": wish.has_suspect,
                    "freed": array_text(freed),
                    "caps": msgspec.json.encode(wish.caps).decode() if wish.caps else None,
                    "batch_sizes": wish.batch_sizes,
                    "started": array_text(wish.starts) if wish.starts else None,
                    "starts": array_text(chain.from_iterable(wish.starts.values())) if wish.starts else None,
                },
            )
        elif freed:
            connection.execute(query("wake_gates"), {"freed": array_text(freed)})
        if choices:
            name_of_query = "lease_chosen" if remote is None else "lease_chosen_for_remote"
            chosen = connection.execute(query(name_of_query), fence | lease_parameters(worker, token, choices))
        if remote is not None:
            remote.end(connection, takes=claimed is not None or chosen is not None)
            record = connection.execute(query("read_poll"), {"remote": remote.remote})
    turn = Turn(holder=worker)
    for cursor in (settled, others):
        if cursor is not None:
            turn.not_held += [(lease, position) for lease, position in cursor.fetchall()]
    if children is not None and (pairs := children.fetchall()):
        ended = set(_list_final(succeeded, ends))
        turn.children = [child for parent, child in pairs if parent in ended]
    if claimed is not None:
        for each in claimed.fetchall():
            if each[0] is None:
                turn.opens_in = -each[12]
            else:
                lease = Lease(*each[:14])
                # To a poll no job comes with its lease.
                lease.only_job = None if remote is not None or each[14] is None else each[14:]
                turn.leases.append(lease)
    if chosen is not None:
        for each in chosen.fetchall():
            if each[0] is None:
                turn.short_of_permits.add(each[1])
            else:
                turn.chosen.append(Lease(*each))
    for lease in (*turn.leases, *turn.chosen):
        lease.token = token
    if record is not None and (row := record.fetchone()) is not None:
        turn.record = record_of(row)
    return turn


def _list_final(succeeded: Sequence[Succeeded], ends: Sequence[End]) -> list[int]:
    """The jobs that will not run again."""
    ended = [each.range * 1024 + position for each in succeeded for position in each.positions]
    return ended + [end.range * 1024 + end.position for end in ends if end.end not in RETURNING]


def held_leases(connection: Connection, worker: int) -> list[Lease]:
    """Every lease of a worker: after a lost answer it may hold some that it never heard of."""
    return [Lease(*row) for row in connection.execute(query("held_leases"), {"worker": worker}).fetchall()]


def settled_by(connection: Connection, name: str, attempts: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Of these attempts, pairs of job and number, those whose end this worker wrote: it is not held and yet its own."""
    rows = connection.execute(
        query("settled_by"),
        {"name": name, "jobs": [job for job, _ in attempts], "attempts": [attempt for _, attempt in attempts]},
    ).fetchall()
    return {(job, attempt) for job, attempt in rows}
