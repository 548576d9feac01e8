"""One request of a poll, from when it arrives until it is answered.

    greet     how its worker stands on each database: the last poll there, what it holds
    begin     where the poll was not begun, its ends are settled and jobs claimed, in one transaction; where it was,
              this request takes the place of the one that began it
    wait      in line, until it is given something, its time is up, or there is something to tell
    finish    what it says is made final on each database, before it is said

A database that does not answer is left out, unless it has ends: then the poll fails as a whole, and is begun again by
whoever repeats it. That it was left out is noted on the others. What it may have been given there all the same, which
nobody was told of, is handed back when the next poll is begun there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.clock import system, ticks
from penstock.errors import InvalidInput, LeaseLost, PartitionUnavailable, RequestTimeout, WorkerGone
from penstock.server.remote.ends import CheckedEnd, SettledEnds
from penstock.server.remote.job_names import lost_job
from penstock.server.remote.messages import GivenJob, LostJob, PollAnswer
from penstock.server.remote.registered_worker import QueueSet, RegisteredWorker, read_registered
from penstock.server.remote.remote_shard import RemoteShard, RoundNews
from penstock.server.remote.turns import Order, RemoteGone, Superseded, Taken, Unsure
from penstock.server.remote.waiting_polls import Tried
from penstock.storage.work.remote_workers import Greeting

__all__ = ["CheckedPoll", "PollCall"]

# A poll that finds that this server owns nothing of what it asks for is answered after so long: its worker calls again,
# and meets the owner.
ELSEWHERE_SECONDS = 0.5
# How often what was seen may have changed before it is given up.
TRIES = 20


class CheckedPoll(NamedTuple):
    """A poll that can be carried out, with its ends by shard."""

    number: int
    ends: Mapping[int, Sequence[CheckedEnd]]
    want: int
    wait: float


@dataclass(slots=True, eq=False)
class Stand:
    """How the poll stands on one database."""

    shard: RemoteShard
    greeting: Greeting
    registered: RegisteredWorker
    request: int
    # Until when the worker's row certainly lives.
    valid_until: int
    seen_news: int
    # What came of it so far; None: it is not begun there.
    taken: Taken | None = None
    owns: bool | None = None
    asked: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_done(self) -> bool:
        return self.taken is not None and self.taken.is_done


class PollCall:
    """Used on the event loop."""

    def __init__(
        self, shards: Mapping[int, RemoteShard], remote: int, poll: CheckedPoll, within: Collection[str] | None
    ) -> None:
        self._shards = shards
        self._remote = remote
        self._poll = poll
        self._within = within
        self._request = system.random_token()
        self._arrived_at = system.monotonic()
        self._stands: dict[int, Stand] = {}
        self._missing: dict[int, PartitionUnavailable] = {}
        # By shard, since which poll answers were given without it; and what of that those that answer were told.
        self._without: dict[int, int] = {}
        self._noted: Mapping[int, int] = {}
        self._is_without_told = True
        self._held = 0
        # One database at a time is tried.
        self._trying = asyncio.Lock()
        # Set when there is something that ends the wait, or changes how long it is.
        self._news = asyncio.Event()
        self._is_over = False
        self._problem: Exception | None = None
        self._is_abandoned = False
        self._must_stop = False

    async def answer(self) -> PollAnswer:
        """Carry it out."""
        try:
            await self._greet()
            await self._begin()
            if self._are_all_lost:
                await self._finish()
                raise LeaseLost(
                    f"none of the jobs that poll {self._poll.number} says have ended is this worker's any more: "
                    "nothing was changed, and nothing claimed; go on with the next number"
                )
            if not self._has_answer and self._left > 0 and self._time_left > 0:
                await self._wait()
            await self._finish()
            await self._check_validity()
            return self._make_answer()
        finally:
            for stand in self._stands.values():
                stand.shard.waiting.leave(self)
                stand.shard.close_poll(stand.greeting.worker, self)

    def stop(self) -> None:
        """The server is about to stop: answer with what there is."""
        self._must_stop = True
        self._end_wait()

    def abandon(self) -> None:
        """Its client has gone: wait no more. Whoever repeats the poll goes on with it."""
        self._is_abandoned = True
        self._end_wait()

    async def hand_back(self) -> None:
        """Nobody was told what it was given: others may have it."""
        for stand in self._stands.values():
            if stand.taken is not None and stand.taken.jobs:
                await stand.shard.hand_back(self._remote, self._poll.number, stand.request)

    # As a poll that waits, see `waiting_polls` and `remote_shard`.

    @property
    def queues(self) -> QueueSet:
        registered = self._registered
        return tuple(sorted((*registered.plain, *registered.owned)))

    def lease_seconds(self) -> float:
        return min((stand.greeting.lease_seconds for stand in self._stands.values()), default=60.0)

    def note_round(self, shard: int, news: RoundNews) -> None:
        stand = self._stands.get(shard)
        if stand is None:
            return
        if not news.is_alive:
            self._fail(WorkerGone(_gone(self._remote)))
            return
        stand.valid_until = news.sent_at + int(stand.greeting.lease_seconds * 1e9)
        if news.asked - stand.asked or news.has_lost:
            self._end_wait()
        stand.asked |= news.asked
        if news.is_asked_to_stop:
            self.stop()

    async def try_on(self, shard: int) -> Tried:
        if self._trying.locked():
            return Tried(None)
        async with self._trying:
            stand = self._stands.get(shard)
            if self._is_over or stand is None:
                return Tried(None)
            try:
                taken = await self._take_if_there(stand)
            except Exception as error:  # Whatever it is, it is for whoever waits for the answer.
                self._fail(error)
                return Tried(None)
            if taken.jobs:
                self._end_wait()
            return Tried(bool(taken.jobs), taken.again_in)

    # How it goes.

    @property
    def _registered(self) -> RegisteredWorker:
        return next(iter(self._stands.values())).registered

    @property
    def _jobs(self) -> list[GivenJob]:
        return [job for stand in self._stands.values() if stand.taken is not None for job in stand.taken.jobs]

    @property
    def _has_answer(self) -> bool:
        return any(stand.is_done for stand in self._stands.values())

    @property
    def _left(self) -> int:
        """How many jobs it may be given yet: no more than its worker runs at once."""
        room = self._registered.concurrency - self._held
        return 0 if self._must_stop else max(min(self._poll.want, room) - len(self._jobs), 0)

    @property
    def _time_left(self) -> float:
        return self._arrived_at + self._poll.wait - system.monotonic()

    @property
    def _are_all_lost(self) -> bool:
        """Whether it named ends, and none of them was held."""
        begun = [stand.taken for stand in self._stands.values() if stand.taken is not None]
        elsewhere = sum(len(ends) for shard, ends in self._poll.ends.items() if shard not in self._shards)
        named = elsewhere + sum(taken.ends for taken in begun)
        return named > 0 and named == elsewhere + sum(taken.ends_lost for taken in begun)

    async def _greet(self) -> None:
        """See how the worker stands on each database; enter it where it is not, and lives elsewhere."""
        found = await asyncio.gather(*map(self._greet_on, self._shards.values()))
        absent = [shard for shard in found if shard is not None]
        if not self._stands:
            for problem in self._missing.values():
                raise problem
            raise WorkerGone(_gone(self._remote))
        self._check_number()
        for shard in absent:
            await shard.enroll(self._remote, self._registered)
            await self._greet_on(shard)
        for number in self._poll.ends:
            if number in self._missing:
                raise self._missing[number]
        newest = max(stand.greeting.number for stand in self._stands.values())
        noted: dict[int, int] = {}
        for stand in self._stands.values():
            if stand.greeting.number == newest:
                for number, since in stand.greeting.without.items():
                    noted[number] = min(noted.get(number, since), since)
        if newest == self._poll.number:
            # Where it was answered, or goes on, without some databases, it is answered without them again.
            for number in [number for number, since in noted.items() if number in self._stands]:
                stand = self._stands.pop(number)
                stand.shard.close_poll(stand.greeting.worker, self)
            self._without = noted
            self._is_without_told = set(self._missing) <= set(noted)
        else:
            self._without = {number: since for number, since in noted.items() if number in self._missing}
        self._noted = noted
        for number in self._missing:
            self._without.setdefault(number, self._poll.number)
        # Whoever repeats the poll is told the same in the same order.
        self._stands = dict(sorted(self._stands.items()))
        self._held = sum(stand.greeting.held_jobs for stand in self._stands.values())

    async def _greet_on(self, shard: RemoteShard) -> RemoteShard | None:
        """Greet; the shard, where the worker is not there."""
        try:
            greeting, sent_at = await shard.greet(self._remote)
        except PartitionUnavailable as error:
            self._missing[shard.number] = error
            return None
        if greeting is None:
            return shard
        registered = read_registered(greeting.registration)
        if not registered.is_within(self._within):
            raise WorkerGone(_gone(self._remote))
        seen = shard.news_of((*registered.plain, *registered.owned))
        # It is not renewed where it was so lately.
        valid_until = sent_at + int(greeting.lease_seconds * 7 / 8 * 1e9)
        stand = Stand(shard, greeting, registered, self._request, valid_until, seen, asked=frozenset(greeting.asked))
        self._stands[shard.number] = stand
        self._must_stop |= greeting.is_asked_to_stop
        shard.open(greeting.worker, self)
        return None

    def _check_number(self) -> None:
        number, last = self._poll.number, max(stand.greeting.number for stand in self._stands.values())
        if number < last:
            raise InvalidInput("number", f"poll {last} came after it; the next is {last + 1}")
        if number > last + 1 and not self._missing:
            raise InvalidInput("number", f"the last was {last}: the next is {last + 1}; or register anew")

    async def _begin(self) -> None:
        """Begin the poll on each database, or go on with it where it is begun."""
        for stand in self._stands.values():
            if stand.greeting.number == self._poll.number:
                await self._go_on(stand)
        fresh = [stand for stand in self._stands.values() if stand.taken is None]
        is_answered = self._has_answer
        settled = {stand.shard.number: await self._settled(stand) for stand in fresh}
        # First where something is held: whether anything is claimed depends on that.
        fresh.sort(key=lambda stand: -settled[stand.shard.number].held)
        for stand in fresh:
            is_only = len(self._stands) == 1
            await self._open(stand, settled[stand.shard.number], is_answered=is_answered, is_only=is_only)
        if is_answered or self._are_all_lost:
            return
        for stand in self._stands.values():
            # Where somebody else had begun it.
            if stand not in fresh and not stand.is_done and self._left > 0:
                await self._take(stand, is_last=self._time_left <= 0 and len(self._stands) == 1)

    async def _settled(self, stand: Stand) -> SettledEnds:
        ends = self._poll.ends.get(stand.shard.number, ())
        return await stand.shard.settle(ends, stand.greeting, stand.registered)

    async def _open(self, stand: Stand, settled: SettledEnds, *, is_answered: bool, is_only: bool) -> None:
        try:
            await self._open_there(stand, settled, is_answered=is_answered, is_only=is_only)
        except PartitionUnavailable as error:
            if settled.held:
                raise
            self._leave_out(stand, error)

    def _leave_out(self, stand: Stand, problem: PartitionUnavailable) -> None:
        """Go on without a database that does not answer. What was sent there may be done all the same, or be yet."""
        if len(self._stands) == 1 or (stand.taken is not None and stand.taken.ends > stand.taken.ends_lost):
            raise problem
        del self._stands[stand.shard.number]
        stand.shard.waiting.leave(self)
        stand.shard.close_poll(stand.greeting.worker, self)
        self._missing[stand.shard.number] = problem
        self._without = {**self._without, stand.shard.number: self._poll.number}
        self._is_without_told = False

    async def _open_there(self, stand: Stand, settled: SettledEnds, *, is_answered: bool, is_only: bool) -> None:
        for _ in range(TRIES):
            self._held -= settled.held
            may_claim = not is_answered and (self._names_nothing or self._was_held or settled.held > 0)
            want = self._left if may_claim else 0
            order = Order(
                *(self._remote, self._poll.number, stand.request, stand.greeting, stand.registered),
                want=want,
                is_last=is_answered or (is_only and (want <= 0 or self._time_left <= 0)),
                settled=settled,
                without=self._without,
                is_untold=self._is_untold(stand),
            )
            try:
                stand.taken = await stand.shard.take(order)
            except Superseded:
                pass
            except Unsure as unsure:
                await self._recover(stand, [stand.greeting.request, stand.request], unsure.request)
            except RemoteGone:
                raise WorkerGone(_gone(self._remote)) from None
            else:
                stand.owns = stand.taken.owns
                return
            self._held += settled.held
            await self._greet_again(stand)
            if stand.greeting.number >= self._poll.number:
                self._check_number()
                await self._go_on(stand)
                return
            settled = await self._settled(stand)
        raise _superseded(self._poll.number)

    async def _go_on(self, stand: Stand) -> None:
        """Act for the poll from here on, where another request has begun it."""
        if stand.greeting.request != stand.request:
            shard = stand.shard
            if not await shard.take_over(self._remote, self._poll.number, stand.request):
                raise _superseded(self._poll.number)
        stand.taken = await stand.shard.read_record(self._remote, stand.registered)

    async def _take_if_there(self, stand: Stand) -> Taken:
        try:
            return await self._take(stand, is_last=False)
        except PartitionUnavailable as error:
            self._leave_out(stand, error)
            return Taken()

    async def _take(self, stand: Stand, *, is_last: bool) -> Taken:
        """Try to get something from a database."""
        order = Order(
            *(self._remote, self._poll.number, stand.request, stand.greeting, stand.registered),
            want=self._left,
            is_last=is_last,
        )
        before = stand.taken
        try:
            taken = await stand.shard.take(order)
        except Superseded:
            raise _superseded(self._poll.number) from None
        except RemoteGone:
            raise WorkerGone(_gone(self._remote)) from None
        except Unsure as unsure:
            await self._recover(stand, [stand.request], unsure.request)
            await self._greet_again(stand)
            taken = await stand.shard.read_record(self._remote, stand.registered)
            taken.owns, taken.again_in = stand.owns, 0.0
        if before is not None:
            taken.ends, taken.ends_lost = before.ends, before.ends_lost
        stand.taken = taken
        if taken.owns != stand.owns:
            stand.owns = taken.owns
            self._news.set()
        return taken

    async def _recover(self, stand: Stand, instead: list[int], request: int) -> None:
        """After a lost answer: let nothing that was sent be committed any more."""
        if not await stand.shard.take_over(self._remote, None, request, instead):
            raise _superseded(self._poll.number)
        stand.request = request

    async def _greet_again(self, stand: Stand) -> None:
        greeting, sent_at = await stand.shard.greet(self._remote, is_renewal=True)
        if greeting is None or greeting.worker != stand.greeting.worker:
            raise WorkerGone(_gone(self._remote))
        stand.greeting = greeting
        stand.valid_until = sent_at + int(greeting.lease_seconds * 1e9)

    async def _wait(self) -> None:
        """Wait for jobs, or for something to tell."""
        for stand in list(self._stands.values()):
            if not stand.is_done and not self._is_over:
                await stand.shard.wait(self, stand.seen_news)
        nothing_since: float | None = None
        while not self._is_over:
            now = system.monotonic()
            until = self._arrived_at + self._poll.wait
            # Of queues with an owner, whether this server is one of those.
            owned = [stand.owns for stand in self._stands.values() if stand.owns is not None]
            if owned and not any(owned):
                nothing_since = now if nothing_since is None else nothing_since
                until = min(until, nothing_since + ELSEWHERE_SECONDS)
            else:
                nothing_since = None
            if now >= until:
                break
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), until - now)
            except TimeoutError:
                continue
        # Who tries just now does so to the end.
        async with self._trying:
            self._is_over = True
        if self._problem is not None:
            raise self._problem
        if self._is_abandoned and not self._has_answer:
            raise _superseded(self._poll.number)

    async def _finish(self) -> None:
        """Make what it says final, on each database on which it is not."""
        is_told = False
        while not is_told:
            is_told = True
            for stand in list(self._stands.values()):
                if stand.is_done and self._is_without_told:
                    continue
                try:
                    await self._end(stand)
                except PartitionUnavailable as error:
                    if stand.taken is not None and stand.taken.jobs:
                        raise
                    self._leave_out(stand, error)
                    # The others have to be told so.
                    is_told = False

    async def _end(self, stand: Stand) -> None:
        jobs = [] if stand.taken is None else stand.taken.jobs
        try:
            stand.taken = await stand.shard.end_poll(
                self._remote, self._poll.number, stand.request, self._without, stand.registered
            )
        except Superseded:
            raise _superseded(self._poll.number) from None
        except RemoteGone:
            raise WorkerGone(_gone(self._remote)) from None
        stand.taken.jobs = jobs

    async def _check_validity(self) -> None:
        """Before jobs are given out: the worker's row is there, or others may have declared it dead."""
        for stand in self._stands.values():
            if stand.taken is not None and stand.taken.jobs and ticks() >= stand.valid_until:
                await self._greet_again(stand)

    def _make_answer(self) -> PollAnswer:
        lost: list[LostJob] = []
        cancelled: set[int] = set()
        for stand in self._stands.values():
            if stand.taken is not None:
                lost += stand.taken.lost
            cancelled |= stand.asked
        ended = {each.named.job for ends in self._poll.ends.values() for each in ends}
        for number, ends in self._poll.ends.items():
            if number not in self._shards:
                lost += [lost_job(number, each.named) for each in ends]
        must_rest = any(stand.shard.row.must_rest for stand in self._stands.values())
        return PollAnswer(
            jobs=self._jobs,
            lost=lost,
            cancelled=[str(job) for job in sorted(cancelled - ended)],
            stop=self._must_stop or must_rest,
        )

    @property
    def _names_nothing(self) -> bool:
        begun = [stand.taken for stand in self._stands.values() if stand.taken is not None]
        return not any(self._poll.ends.values()) and not any(taken.ends for taken in begun)

    @property
    def _was_held(self) -> bool:
        """Whether some of its ends were taken."""
        begun = [stand.taken for stand in self._stands.values() if stand.taken is not None]
        return any(taken.ends > taken.ends_lost for taken in begun)

    def _is_untold(self, stand: Stand) -> bool:
        since = self._noted.get(stand.shard.number)
        return since is not None and since <= stand.greeting.number

    def _end_wait(self) -> None:
        self._is_over = True
        self._news.set()

    def _fail(self, problem: Exception) -> None:
        self._problem = self._problem or problem
        self._end_wait()


def _superseded(number: int) -> RequestTimeout:
    return RequestTimeout(
        f"poll {number} was begun again by a later request, which is answered in place of this one; call again",
        outcome="not written",
    )


def _gone(remote: int) -> str:
    return (
        f"worker {remote} is not known: it was silent for longer than its lease, or has left; what it held is not its "
        "own any more: register anew"
    )
