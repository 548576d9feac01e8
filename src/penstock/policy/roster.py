"""What may start next in one owned partition.

The worker that owns a partition reads its waiting jobs once and keeps them here, a few bytes each; which of them may
start is decided in memory, at a cost that does not grow with how deep a key is.

    add ──► waiting ──take──► out ──ended──► over
               ▲               │
               └───add── held ◄┘  a retry or snooze that keeps its place, or a release that was not read again yet

A key's jobs start in order, at most `per_key` of them out at a time, those leased by another worker included; while
one of them is held, or the key is halted or waits for an older map, none starts. Nothing here asks for the time or
for the database: what the tables say is told after each read of one snapshot, by `add` first and then `set_elsewhere`,
`set_held`, `set_halted` and `set_maps`. What was learned here since may be unknown to that snapshot, so a hold or halt
is believed over one snapshot that does not name it; not over two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.policy.key import Key, Standing
from penstock.policy.lane import ID, MARK, RANK, Lane
from penstock.policy.maps import Maps
from penstock.policy.rate import Bucket, KeyBuckets, Rate
from penstock.policy.turns import FairTurns, Turns

__all__ = ["Roster", "Rules", "Waiting"]

LONGEST_CHAIN = 64
RETURNING_ENDS = frozenset({"retry", "snooze"})
FINAL_ENDS = frozenset({"succeeded", "failed", "cancelled", "discarded", "expired", "gone"})


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue asks for. `per_key` None: a key has no order, and nothing of it is held."""

    per_key: int | None
    limit: int | None = None
    rate: float | None = None
    per_key_rate: float | None = None
    holds_on_retry: bool = True
    halts_on_dead: bool = False
    is_fair: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_chains(self) -> bool:
        """Whether jobs of a key may be given out together, to run one after the other."""
        return self.per_key == 1 and not self.is_fair and (self.limit, self.rate, self.per_key_rate) == (None,) * 3


class Waiting(NamedTuple):
    """A job as `ready` has it. The least rank starts first: when it became ready, plus a minute per priority."""

    id: int
    key: bytes | None
    priority: int
    pos: int
    rank: float
    tenant: str
    epoch: int
    is_known: bool


class _Hold:
    """A job that holds its key until it is read again; unnamed by so many snapshots more, it does not."""

    __slots__ = ("is_release", "key", "survives")

    def __init__(self, key: Key, survives: int, is_release: bool) -> None:
        self.key = key
        self.survives = survives
        self.is_release = is_release


class Roster:
    """The jobs of one owned partition. Used by one thread at a time."""

    def __init__(self, rules: Rules, number: int, now: float) -> None:
        self._rules = rules
        self._has_chains = rules.has_chains
        self._turns = FairTurns(rules.weights) if rules.is_fair else Turns()
        self._maps = Maps(number)
        self._keys: dict[bytes | None, Key] = {}
        # Jobs without a key and without a handler: nothing waits behind them.
        self._unhandled = Key(None)
        self._out: dict[int, Key] = {}
        self._elsewhere: dict[int, Key] = {}
        self._held: dict[int, _Hold] = {}
        self._halted: dict[bytes, int] = {}
        self._draining: set[Key] = set()
        # Keys that wait for a token of their own, by when it comes.
        self._resting = Turns()
        self._bucket: Bucket | None = None
        self._key_buckets: KeyBuckets | None = None
        self._set_rates(now)
        self.waiting = 0
        self.startable = 0
        # Keys with something that will start without anyone's doing, and releases not read again yet.
        self._hopeful = 0
        self._releases = 0

    @property
    def rules(self) -> Rules:
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        """Go by other limits, rates and weights from now on; what is out stays out."""
        before, self._rules = self._rules, rules
        if rules.is_fair != before.is_fair:
            raise ValueError("whether a queue is fair cannot change while it is owned")
        if isinstance(self._turns, FairTurns):
            self._turns.weights = rules.weights
        self._has_chains = rules.has_chains
        self._has_new_rates |= (rules.rate, rules.per_key_rate) != (before.rate, before.per_key_rate)
        if (rules.per_key, rules.per_key_rate, rules.has_chains) != (
            before.per_key,
            before.per_key_rate,
            before.has_chains,
        ):
            self._resting = Turns()
            for key in list(self._keys.values()):
                key.turn = None
                self._place(key)

    def add(self, jobs: Iterable[Waiting]) -> None:
        """Take over jobs read from `ready`; one that is out or held comes back into its place."""
        out, held, mark_of = self._out, self._held, self._turns.mark
        touched: set[Key] = set()
        for job, name, priority, pos, rank, tenant, epoch, is_known in jobs:
            if job in out:
                key = out.pop(job)
                key.out -= 1
                touched.add(key)
            if job in held:
                touched.add(self._let_go(job))
            key = self._key(name) if is_known or name is not None else self._unhandled
            mark = mark_of(tenant)
            if key.add(epoch, priority, pos, job, int(rank * 1_000_000), 2 * mark + is_known):
                self.waiting += 1
            else:
                self._turns.unmark(mark)
            touched.add(key)
        touched.discard(self._unhandled)
        for key in touched:
            self._place(key)

    def take(self, wanted: int, now: float) -> list[list[int]]:
        """Give out at most so many jobs, as chains: jobs of one key, to run one after the other in this order."""
        if self._has_new_rates:
            self._set_rates(now)
        if self._has_chains:
            return self._take_chains(wanted)
        chains: list[list[int]] = []
        room = self._room(wanted, now)
        while len(chains) < room:
            key = self._next(now)
            if key is None:
                break
            job = self._start(key)
            if job is not None:
                self._turns.started()
                if self._key_buckets is not None and key.name is not None:
                    self._key_buckets.spend(key.name, now)
                chains.append([job])
            self._place(key)
        if self._bucket is not None:
            self._bucket.spend(now, len(chains))
        return chains

    def ended(self, job: int, end: str, now: float) -> None:
        """A job that was taken is no longer out; nothing changes where it came back by `add` meanwhile."""
        key = self._out.pop(job, None)
        if key is None:
            return
        key.out -= 1
        if end == "failed":
            if self._rules.halts_on_dead and key.name is not None:
                self._halted[key.name] = 1
        elif end == "release" or (end in RETURNING_ENDS and self._rules.holds_on_retry):
            self._hold(job, key, survives=1, is_release=end == "release")
        elif end not in FINAL_ENDS and end not in RETURNING_ENDS:
            raise ValueError(f"a job cannot end as {end!r}")
        if not (key.out and self._has_chains and key.name is not None):
            self._place(key)

    def set_elsewhere(self, jobs: Iterable[tuple[int, bytes | None]]) -> None:
        """Replace what other workers have leased of this partition."""
        named = {job: name for job, name in jobs if job not in self._out}
        touched: set[Key] = set()
        for job in [job for job in self._elsewhere if job not in named]:
            key = self._elsewhere.pop(job)
            key.elsewhere -= 1
            touched.add(key)
        for job, name in named.items():
            if job not in self._elsewhere:
                key = self._elsewhere[job] = self._key(name)
                key.elsewhere += 1
                touched.add(key)
        for key in touched:
            self._place(key)

    def set_held(self, jobs: Iterable[tuple[int, bytes | None]]) -> None:
        """Replace which retries and snoozes wait and hold their key; one that is gone and was not added is over."""
        named = {job: name for job, name in jobs if name is not None}
        touched: set[Key] = set()
        for job, hold in list(self._held.items()):
            if job in named:
                hold.survives = 0
                del named[job]
            elif hold.survives:
                hold.survives -= 1
            else:
                touched.add(self._let_go(job))
        for job, name in named.items():
            key = self._key(name)
            self._hold(job, key, survives=0, is_release=False)
            touched.add(key)
        for key in touched:
            self._place(key)

    def set_halted(self, keys: Collection[bytes]) -> None:
        """Replace which keys wait for a person."""
        named = frozenset(keys)
        changed = named - self._halted.keys()
        for name, survives in list(self._halted.items()):
            if name in named:
                self._halted[name] = 0
            elif survives:
                self._halted[name] = survives - 1
            else:
                del self._halted[name]
                changed |= {name}
        for name in changed & named:
            self._halted[name] = 0
        for name in changed & self._keys.keys():
            self._place(self._keys[name])

    def set_maps(
        self, maps: Mapping[int, int], open_: Collection[tuple[int, int]], held: Collection[tuple[int, bytes]]
    ) -> None:
        """Replace what is known of the maps: the partitions of each epoch, what is open, which keys are held."""
        may_wait_anew = self._maps.change(maps, open_, held)
        for key in list(self._keys.values() if may_wait_anew else self._draining):
            self._place(key)

    def next_at(self, now: float) -> float | None:
        """When a rate lets the next job start; None where one could now, or it is not a rate that it waits for."""
        if self._has_new_rates:
            self._set_rates(now)
        if self._free_slots() == 0:
            return None
        key = self._next(now)
        if key is not None:
            self._place(key)
        key_at = now if key is not None else self._resting.first()
        if key_at is None:
            return None
        at = max(key_at, self._bucket.next_at()) if self._bucket is not None else key_at
        return at if at > now else None

    def is_idle(self, now: float) -> bool:
        """Whether nothing is out, and nothing will start unless a retry returns, a person acts, or jobs come."""
        return not (self._out or self._hopeful or self._releases)

    def _key(self, name: bytes | None) -> Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = Key(name)
        return key

    def _hold(self, job: int, key: Key, survives: int, is_release: bool) -> None:
        if job not in self._held:
            self._held[job] = _Hold(key, survives, is_release)
            key.holds += 1
            self._releases += is_release

    def _let_go(self, job: int) -> Key:
        hold = self._held.pop(job)
        hold.key.holds -= 1
        self._releases -= hold.is_release
        return hold.key

    def _place(self, key: Key) -> None:
        """Find out where a key stands after something about it has changed."""
        startable = 0
        standing = Standing.EMPTY
        if key.waiting:
            lane = key.head()
            standing = self._standing(key, lane)
            if standing is Standing.READY:
                rank, job = lane.first[lane.at + RANK], lane.first[lane.at + ID]
                if key.turn is None or key.turn[1] != job or key.turn[0] != rank:
                    key.turn = (rank, job, key)
                    self._turns.enter(key.turn, lane.first[lane.at + MARK] >> 1)
                startable = min(key.waiting, self._free_of(key))
        elif key.is_forgettable:
            self._keys.pop(key.name, None)
        if standing is not Standing.READY:
            key.turn = None
        self.startable += startable - key.startable
        key.startable = startable
        if standing is not key.standing:
            self._hopeful += (standing >= Standing.BUSY) - (key.standing >= Standing.BUSY)
            if standing is Standing.DRAINING:
                self._draining.add(key)
            elif key.standing is Standing.DRAINING:
                self._draining.discard(key)
            key.standing = standing

    def _standing(self, key: Key, lane: Lane) -> Standing:
        name, per_key = key.name, self._rules.per_key
        if name is None:
            return Standing.READY
        if (key.holds and per_key is not None) or name in self._halted or not lane.first[lane.at + MARK] & 1:
            return Standing.STUCK
        if per_key is not None and key.out + key.elsewhere >= per_key:
            return Standing.BUSY
        if self._maps.is_draining(name, lane.epoch):
            return Standing.DRAINING
        return Standing.READY

    def _free_of(self, key: Key) -> int:
        if key.name is None or self._rules.per_key is None:
            return key.waiting
        return LONGEST_CHAIN if self._has_chains else self._rules.per_key - key.out - key.elsewhere

    def _free_slots(self) -> int | None:
        if self._rules.limit is None:
            return None
        return max(0, self._rules.limit - len(self._out) - len(self._elsewhere))

    def _room(self, wanted: int, now: float) -> int:
        free = self._free_slots()
        room = wanted if free is None else min(wanted, free)
        return room if self._bucket is None else min(room, self._bucket.tokens(now))

    def _next(self, now: float) -> Key | None:
        """The key whose turn it is, of those that have a token."""
        buckets = self._key_buckets
        if buckets is not None:
            while (rested_at := self._resting.first()) is not None and rested_at <= now:
                if (key := self._resting.next()) is not None:
                    self._place(key)
        while (key := self._turns.next()) is not None:
            if buckets is None or key.name is None:
                return key
            token_at = buckets.next_at(key.name)
            if token_at <= now:
                return key
            lane = key.head()
            turn = key.turn = (token_at, lane.first[lane.at + ID], key)
            self._resting.enter(turn, 0)
        return None

    def _start(self, key: Key) -> int | None:
        """Take the next job of a key out of those that wait; None where it may not start."""
        while key.waiting:
            lane = key.head()
            mark = lane.first[lane.at + MARK]
            if key.name is not None and (not mark & 1 or self._maps.is_draining(key.name, lane.epoch)):
                return None
            job = key.pop(lane)
            self.waiting -= 1
            self._turns.unmark(mark >> 1)
            # It may have entered its key's order a second time, having left it unseen: rescheduled, say.
            if job not in self._out:
                self._out[job] = key
                key.out += 1
                return job
        return None

    def _take_chains(self, wanted: int) -> list[list[int]]:
        chains: list[list[int]] = []
        begun: list[tuple[Key, list[int]]] = []
        while len(chains) < wanted and (key := self._turns.next()) is not None:
            job = self._start(key)
            if job is not None:
                chains.append([job])
            if job is not None and key.name is not None:
                begun.append((key, chains[-1]))
            else:
                self._place(key)
        left = wanted - len(chains)
        growing = begun
        while left and growing:
            still: list[tuple[Key, list[int]]] = []
            for key, chain in growing:
                if not left:
                    break
                job = self._start(key)
                if job is not None:
                    chain.append(job)
                    left -= 1
                    if len(chain) < LONGEST_CHAIN:
                        still.append((key, chain))
            growing = still
        for key, _ in begun:
            self._place(key)
        return chains

    def _set_rates(self, now: float) -> None:
        self._has_new_rates = False
        rate, per_key_rate = self._rules.rate, self._rules.per_key_rate
        if rate is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = Bucket(Rate(rate), now)
        else:
            self._bucket.change(Rate(rate), now)
        if per_key_rate is None:
            self._key_buckets = None
        elif self._key_buckets is None:
            self._key_buckets = KeyBuckets(Rate(per_key_rate), now)
        else:
            self._key_buckets.change(Rate(per_key_rate), now)
