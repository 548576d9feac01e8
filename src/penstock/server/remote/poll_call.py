"""One request of a poll, from when it arrives until it is answered.

greet     how its worker stands on each database: the last poll there, what it holds
begin     where the poll was not begun, its ends are settled and jobs claimed, in one transaction; where it was,
          this request takes the place of the one that began it
wait      in line, until it is given something, its time is up, or there is something to tell
finish    what it says is made final on each database, before it is said
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from penstock.clock import system
from penstock.errors import LeaseLost, PartitionUnavailable
from penstock.server.remote.ends import SettledEnds
from penstock.server.remote.job_names import lost_job
from penstock.server.remote.messages import LostJob, PollAnswer
from penstock.server.remote.registered_worker import QueueSet
from penstock.server.remote.remote_shard import RemoteShard, RoundNews
from penstock.server.remote.stands import CheckedPoll, Stand, Stands, superseded
from penstock.server.remote.turns import Order, RemoteGone, Superseded, Taken, Unsure
from penstock.server.remote.waiting_polls import Tried

__all__ = ["CheckedPoll", "PollCall"]

# A poll that finds that this server owns nothing of what it asks for is answered after so long: its worker calls again,
# and meets the owner.
ELSEWHERE_SECONDS = 0.5
# How often what was seen may have changed before it is given up.
TRIES = 20


class PollCall:
    """Used on the event loop. `within`: the queues that the caller may act for; None: all."""

    def __init__(
        self, shards: Mapping[int, RemoteShard], remote: int, poll: CheckedPoll, within: Collection[str] | None
    ) -> None:
        self._shards = shards
        self._poll = poll
        self._stands = Stands(shards, remote, poll, within, self)
        self._arrived_at = system.monotonic()
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
        stands = self._stands
        try:
            await stands.greet()
            self._held = stands.held_jobs
            self._must_stop |= any(stand.greeting.is_asked_to_stop for stand in stands)
            await self._begin()
            if not stands.are_all_lost and not stands.has_answer and self._left > 0 and self._time_left > 0:
                await self._wait()
            await stands.finish()
            if stands.are_all_lost:
                raise LeaseLost(
                    f"none of the jobs that poll {self._poll.number} says have ended is this worker's any more: "
                    "nothing was changed, and nothing claimed; go on with the next number"
                )
            await stands.check_validity()
            return self._make_answer()
        finally:
            stands.close()

    def stop(self) -> None:
        """The server is about to stop, or the worker is to: answer with what there is."""
        self._must_stop = True
        self._end_wait()

    def abandon(self) -> None:
        """Its client has gone: wait no more. Whoever repeats the poll goes on with it."""
        self._is_abandoned = True
        self._end_wait()

    async def hand_back(self) -> None:
        """Nobody was told what it was given: others may have it."""
        await self._stands.hand_back()

    # As a poll that waits and is renewed, see `waiting_polls` and `remote_shard`.

    @property
    def queues(self) -> QueueSet:
        registered = self._stands.registered
        return tuple(sorted((*registered.plain, *registered.owned)))

    def lease_seconds(self) -> float:
        return min((stand.greeting.lease_seconds for stand in self._stands), default=60.0)

    def note_round(self, shard: int, news: RoundNews) -> None:
        stand = self._stands.get(shard)
        if stand is None:
            return
        if not news.is_alive:
            self._fail(self._stands.gone_from(stand))
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
    def _left(self) -> int:
        """How many jobs it may be given yet: no more than its worker runs at once."""
        room = self._stands.registered.concurrency - self._held
        return 0 if self._must_stop else max(min(self._poll.want, room) - len(self._stands.jobs), 0)

    @property
    def _time_left(self) -> float:
        return self._arrived_at + self._poll.wait - system.monotonic()

    async def _begin(self) -> None:
        """Begin the poll on each database, or go on with it where it is begun."""
        stands = self._stands
        for stand in stands:
            if stand.greeting.number == self._poll.number:
                await self._go_on(stand)
        begun = [stand for stand in stands if stand.taken is not None]
        is_answered = stands.has_answer
        fresh = [(stand, await self._settled(stand)) for stand in stands if stand.taken is None]
        # First where something is held: whether anything is claimed depends on that.
        for stand, settled in sorted(fresh, key=lambda each: -each[1].held):
            try:
                await self._open(stand, settled, is_answered=is_answered)
            except PartitionUnavailable as error:
                if settled.held:
                    raise
                stands.leave_out(stand, error)
        if is_answered or stands.are_all_lost:
            return
        for stand in begun:
            if not stand.is_done and self._left > 0:
                await self._take(stand, is_last=self._time_left <= 0 and len(stands) == 1)

    async def _settled(self, stand: Stand) -> SettledEnds:
        ends = self._poll.ends.get(stand.shard.number, ())
        return await stand.shard.settle(ends, stand.greeting, stand.registered)

    async def _open(self, stand: Stand, settled: SettledEnds, *, is_answered: bool) -> None:
        """Begin it on a database; where something is another than was seen, look again."""
        stands = self._stands
        for _ in range(TRIES):
            self._held -= settled.held
            may_claim = not is_answered and (stands.names_nothing or stands.was_held or settled.held > 0)
            want = self._left if may_claim else 0
            is_last = is_answered or (len(stands) == 1 and (want <= 0 or self._time_left <= 0))
            try:
                stand.taken = await stand.shard.take(self._order(stand, want, is_last=is_last, settled=settled))
            except Superseded:
                pass
            except Unsure as unsure:
                await self._recover(stand, [stand.greeting.request, stand.request], unsure.request)
            except RemoteGone:
                raise stands.gone_from(stand) from None
            else:
                stand.owns = stand.taken.owns
                return
            self._held += settled.held
            await stands.greet_again(stand)
            if stand.greeting.number >= self._poll.number:
                stands.check_number()
                await self._go_on(stand)
                return
            settled = await self._settled(stand)
        raise superseded(self._poll.number)

    async def _go_on(self, stand: Stand) -> None:
        """Act for the poll from here on, where another request has begun it."""
        shard, remote = stand.shard, self._stands.remote
        is_mine = stand.greeting.request == stand.request
        if not is_mine and not await shard.take_over(remote, self._poll.number, stand.request):
            raise superseded(self._poll.number)
        stand.taken = await shard.read_record(remote, stand.registered)

    async def _take_if_there(self, stand: Stand) -> Taken:
        try:
            return await self._take(stand, is_last=False)
        except PartitionUnavailable as error:
            self._stands.leave_out(stand, error)
            return Taken()

    async def _take(self, stand: Stand, *, is_last: bool) -> Taken:
        """Try to get something from a database."""
        before = stand.taken
        try:
            taken = await stand.shard.take(self._order(stand, self._left, is_last=is_last))
        except Superseded:
            raise superseded(self._poll.number) from None
        except RemoteGone:
            raise self._stands.gone_from(stand) from None
        except Unsure as unsure:
            await self._recover(stand, [stand.request], unsure.request)
            taken = await stand.shard.read_record(self._stands.remote, stand.registered)
            taken.owns, taken.again_in = stand.owns, 0.0
        if before is not None:
            taken.ends, taken.ends_lost = before.ends, before.ends_lost
        stand.taken = taken
        if taken.owns != stand.owns:
            stand.owns = taken.owns
            self._news.set()
        return taken

    def _order(self, stand: Stand, want: int, *, is_last: bool, settled: SettledEnds | None = None) -> Order:
        return Order(
            self._stands.remote,
            self._poll.number,
            stand.request,
            stand.greeting,
            stand.registered,
            want,
            is_last,
            settled,
            self._stands.without,
            self._stands.is_untold(stand),
        )

    async def _recover(self, stand: Stand, instead: list[int], request: int) -> None:
        """After a lost answer: let nothing that was sent be committed any more."""
        if not await stand.shard.take_over(self._stands.remote, None, request, instead):
            raise superseded(self._poll.number)
        stand.request = request

    async def _wait(self) -> None:
        """Wait for jobs, or for something to tell."""
        for stand in self._stands:
            if not stand.is_done and not self._is_over:
                await stand.shard.wait(self, stand.seen_news)
        nothing_since: float | None = None
        while not self._is_over:
            now = system.monotonic()
            until = self._arrived_at + self._poll.wait
            # Of queues with an owner: whether this server owns any partition.
            owned = [stand.owns for stand in self._stands if stand.owns is not None]
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
        if self._is_abandoned and not self._stands.has_answer:
            raise superseded(self._poll.number)

    def _make_answer(self) -> PollAnswer:
        lost: list[LostJob] = []
        cancelled: set[int] = set()
        for stand in self._stands:
            lost += [] if stand.taken is None else stand.taken.lost
            cancelled |= stand.asked
        for number, ends in self._poll.ends.items():
            if number not in self._shards:
                lost += [lost_job(number, each.named) for each in ends]
        ended = {each.named.job for ends in self._poll.ends.values() for each in ends}
        return PollAnswer(
            jobs=self._stands.jobs,
            lost=lost,
            cancelled=[str(job) for job in sorted(cancelled - ended)],
            stop=self._must_stop or any(stand.shard.row.must_rest for stand in self._stands),
        )

    def _end_wait(self) -> None:
        self._is_over = True
        self._news.set()

    def _fail(self, problem: Exception) -> None:
        self._problem = self._problem or problem
        self._end_wait()
