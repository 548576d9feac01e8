"""How one poll stands on each database: who takes part, what came of it there, and what is final.

A database that does not answer is left out, unless it has ends: then the poll fails as a whole, and is begun again by
whoever repeats it. That it was left out is noted on the others, with the number of the first poll since when it is.
What was given there all the same, and told to nobody, is handed back when the next poll is begun there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.clock import system, ticks
from penstock.errors import InvalidInput, PartitionUnavailable, PenstockError, RequestTimeout, WorkerGone
from penstock.server.remote.ends import CheckedEnd
from penstock.server.remote.messages import GivenJob
from penstock.server.remote.registered_worker import RegisteredWorker, read_registered
from penstock.server.remote.remote_shard import OpenPoll, RemoteShard
from penstock.server.remote.turns import RemoteGone, Superseded, Taken
from penstock.storage.work.remote_workers import Greeting

__all__ = ["CheckedPoll", "Stand", "Stands", "superseded"]


class CheckedPoll(NamedTuple):
    """A poll that can be carried out, with its ends by shard."""

    number: int
    ends: Mapping[int, Sequence[CheckedEnd]]
    want: int
    wait: float


@dataclass(slots=True, eq=False)
class Stand:
    """How it stands on one database."""

    shard: RemoteShard
    greeting: Greeting
    registered: RegisteredWorker
    # The request that acts for the worker there.
    request: int
    # Until when the worker's row certainly lives.
    valid_until: int
    # What was the number of news when it was first looked at.
    seen_news: int
    # What came of it so far; None: it is not begun there.
    taken: Taken | None = None
    owns: bool | None = None
    # Jobs of the worker that somebody wants stopped.
    asked: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_done(self) -> bool:
        """Whether what it says of this database is final."""
        return self.taken is not None and self.taken.is_done

    @property
    def jobs(self) -> list[GivenJob]:
        return [] if self.taken is None else self.taken.jobs


class Stands:
    """On all databases that take part. `within`: the queues that the caller may act for; None: all. `opened`: the poll,
    whose worker is renewed as long as it is open.
    """

    def __init__(
        self,
        shards: Mapping[int, RemoteShard],
        remote: int,
        poll: CheckedPoll,
        within: Collection[str] | None,
        opened: OpenPoll,
    ) -> None:
        self.remote = remote
        self.poll = poll
        self._shards = shards
        self._within = within
        self._opened = opened
        self._request = system.random_token()
        self._all: dict[int, Stand] = {}
        self._missing: dict[int, PartitionUnavailable] = {}
        # By shard, since which poll answers are given without it, as it was noted before, and as it is now; and whether
        # those that answer were told so.
        self._noted: Mapping[int, int] = {}
        self.without: Mapping[int, int] = {}
        self._is_told = True

    def __iter__(self) -> Iterator[Stand]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, shard: int) -> Stand | None:
        return self._all.get(shard)

    @property
    def registered(self) -> RegisteredWorker:
        return next(iter(self._all.values())).registered

    @property
    def jobs(self) -> list[GivenJob]:
        """What was given so far."""
        return [job for stand in self for job in stand.jobs]

    @property
    def has_answer(self) -> bool:
        return any(stand.is_done for stand in self)

    @property
    def held_jobs(self) -> int:
        """How many jobs the worker held when it was greeted."""
        return sum(stand.greeting.held_jobs for stand in self)

    @property
    def names_nothing(self) -> bool:
        """Whether no end was named, by this request or the one that began the poll."""
        return not any(self.poll.ends.values()) and not any(taken.ends for taken in self._begun)

    @property
    def was_held(self) -> bool:
        """Whether an end was taken."""
        return any(taken.ends > taken.ends_lost for taken in self._begun)

    @property
    def are_all_lost(self) -> bool:
        """Whether ends were named, and none was taken."""
        elsewhere = sum(len(ends) for shard, ends in self.poll.ends.items() if shard not in self._shards)
        named = elsewhere + sum(taken.ends for taken in self._begun)
        return named > 0 and named == elsewhere + sum(taken.ends_lost for taken in self._begun)

    def is_untold(self, stand: Stand) -> bool:
        """Whether the answer to the last poll there was given without that database."""
        since = self._noted.get(stand.shard.number)
        return since is not None and since <= stand.greeting.number

    async def greet(self) -> None:
        """See how the worker stands on each database; enter it where it is not, and lives elsewhere."""
        absent = [shard for shard in await asyncio.gather(*map(self._greet_on, self._shards.values())) if shard]
        if not self._all:
            for problem in self._missing.values():
                raise problem
            raise WorkerGone(_gone(self.remote))
        self.check_number()
        for shard in absent:
            try:
                await shard.enroll(self.remote, self.registered)
                await self._greet_on(shard)
            except PartitionUnavailable as error:
                self._missing[shard.number] = error
        for number in self.poll.ends:
            if number in self._missing:
                raise self._missing[number]
        self._read_notes()
        # Whoever repeats the poll is told the same in the same order.
        self._all = dict(sorted(self._all.items()))

    async def greet_again(self, stand: Stand) -> None:
        """See how the worker stands there now."""
        greeting, sent_at = await stand.shard.greet(self.remote, is_renewal=True)
        if greeting is None or greeting.worker != stand.greeting.worker:
            raise self.gone_from(stand)
        stand.greeting = greeting
        stand.valid_until = sent_at + int(greeting.lease_seconds * 1e9)

    def check_number(self) -> None:
        """Refuse a poll that is not the last or the next."""
        number, last = self.poll.number, max(stand.greeting.number for stand in self)
        if number < last:
            raise InvalidInput("number", f"poll {last} came after it; the next is {last + 1}")
        if number > last + 1 and not self._missing:
            raise InvalidInput("number", f"the last was {last}: the next is {last + 1}; or register anew")

    def gone_from(self, stand: Stand) -> PenstockError:
        """The worker was declared dead there: it goes on there as another, if it lives elsewhere."""
        if len(self._all) == 1:
            return WorkerGone(_gone(self.remote))
        return RequestTimeout(
            f"worker {self.remote} was declared dead on shard {stand.shard.number} while it polled, and what it held "
            "there is lost; call again",
            outcome="unknown",
        )

    def leave_out(self, stand: Stand, problem: PartitionUnavailable) -> None:
        """Go on without a database that does not answer. What was sent there may be done, or be done yet."""
        if len(self._all) == 1 or (stand.taken is not None and stand.taken.ends > stand.taken.ends_lost):
            raise problem
        self._drop(stand)
        self._missing[stand.shard.number] = problem
        self.without = {**self.without, stand.shard.number: self.poll.number}
        self._is_told = False

    async def finish(self) -> None:
        """Make what the poll says final, on each database on which it is not."""
        must_tell = True
        while must_tell:
            must_tell = False
            for stand in self:
                if stand.is_done and self._is_told:
                    continue
                try:
                    await self._end(stand)
                except PartitionUnavailable as error:
                    if stand.jobs:
                        raise
                    self.leave_out(stand, error)
                    # The others have to hear of that.
                    must_tell = True

    async def check_validity(self) -> None:
        """Before jobs are given out: the worker's row is there, or others may have declared it dead."""
        for stand in self:
            if stand.jobs and ticks() >= stand.valid_until:
                await self.greet_again(stand)

    async def hand_back(self) -> None:
        """Nobody was told what was given: others may have it."""
        for stand in self:
            if stand.jobs:
                await stand.shard.hand_back(self.remote, self.poll.number, stand.request)

    def close(self) -> None:
        """The poll is answered."""
        for stand in self:
            stand.shard.waiting.leave(self._opened)
            stand.shard.close_poll(stand.greeting.worker, self._opened)

    @property
    def _begun(self) -> list[Taken]:
        return [stand.taken for stand in self if stand.taken is not None]

    async def _greet_on(self, shard: RemoteShard) -> RemoteShard | None:
        """Greet; the shard, where the worker is not there."""
        try:
            greeting, sent_at = await shard.greet(self.remote)
        except PartitionUnavailable as error:
            self._missing[shard.number] = error
            return None
        if greeting is None:
            return shard
        registered = read_registered(greeting.registration)
        if not registered.is_within(self._within):
            raise WorkerGone(_gone(self.remote))
        seen = shard.news_of((*registered.plain, *registered.owned))
        # It is not renewed where it was so lately.
        valid_until = sent_at + int(greeting.lease_seconds * 7 / 8 * 1e9)
        stand = Stand(shard, greeting, registered, self._request, valid_until, seen, asked=frozenset(greeting.asked))
        self._all[shard.number] = stand
        shard.open(greeting.worker, self._opened)
        return None

    def _read_notes(self) -> None:
        """Learn without which databases polls were answered so far, from those that took part in the last."""
        newest = max(stand.greeting.number for stand in self)
        noted: dict[int, int] = {}
        for stand in self:
            if stand.greeting.number == newest:
                for number, since in stand.greeting.without.items():
                    noted[number] = min(noted.get(number, since), since)
        if newest == self.poll.number:
            # Where it was answered, or goes on, without some databases, it is answered without them again.
            for stand in self:
                if stand.shard.number in noted:
                    self._drop(stand)
            self.without = noted
            self._is_told = self._missing.keys() <= noted.keys()
        else:
            self.without = {number: since for number, since in noted.items() if number in self._missing}
        self._noted = noted
        self.without = {**dict.fromkeys(self._missing, self.poll.number), **self.without}

    def _drop(self, stand: Stand) -> None:
        del self._all[stand.shard.number]
        stand.shard.waiting.leave(self._opened)
        stand.shard.close_poll(stand.greeting.worker, self._opened)

    async def _end(self, stand: Stand) -> None:
        jobs = stand.jobs
        try:
            stand.taken = await stand.shard.end_poll(
                self.remote, self.poll.number, stand.request, self.without, stand.registered
            )
        except Superseded:
            raise superseded(self.poll.number) from None
        except RemoteGone:
            raise self.gone_from(stand) from None
        stand.taken.jobs = jobs


def superseded(number: int) -> RequestTimeout:
    """What a request is told in whose place another one acts."""
    return RequestTimeout(
        f"poll {number} was begun again by a later request, which is answered in place of this one; call again",
        outcome="not written",
    )


def _gone(remote: int) -> str:
    return (
        f"worker {remote} is not known: it was silent for longer than its lease, or has left; what it held is not its "
        "own any more: register anew"
    )
