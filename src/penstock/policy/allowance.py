"""How many jobs a partition may start now: its limit, its rate, and the rate of each key."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.rules import QueueRules
from penstock.policy.key import Key
from penstock.policy.rate import Bucket, KeyBuckets, Rate
from penstock.policy.ready_keys import ReadyKeys

__all__ = ["Allowance"]


class Allowance:
    """The buckets of one partition, and the keys that wait for a token of their own, or for a fuller batch."""

    __slots__ = ("_bucket", "_key_buckets", "_rules", "_without_token", "has_key_rate")

    def __init__(self, rules: QueueRules, now: float) -> None:
        self._rules = rules
        rate, key_rate = rules.starts_a_second, rules.starts_of_key_a_second
        self._bucket = None if rate is None else Bucket(Rate(rate), now)
        self._key_buckets = None if key_rate is None else KeyBuckets(Rate(key_rate), now)
        self._without_token = ReadyKeys()
        self.has_key_rate = rules.per_key_rate is not None

    def change(self, rules: QueueRules, now: float) -> None:
        """Go by other rates: a bucket keeps what it has, as far as it fits."""
        before, self._rules = self._rules, rules
        rate, key_rate = rules.starts_a_second, rules.starts_of_key_a_second
        self.has_key_rate = rules.per_key_rate is not None
        fresh = Allowance(rules, now)
        if before.rate is None or rate is None or self._bucket is None:
            self._bucket = fresh._bucket
        elif rules.rate != before.rate:
            self._bucket.change(Rate(rate), now)
        if before.per_key_rate is None or key_rate is None or self._key_buckets is None:
            self._key_buckets = fresh._key_buckets
        elif rules.per_key_rate != before.per_key_rate:
            self._key_buckets.change(Rate(key_rate), now)

    def empty_keys(self, names: Iterable[bytes] | None, now: float) -> None:
        """These keys, or all, may have come from a partition that has just spent what they had."""
        if self._key_buckets is not None:
            if names is None:
                self._key_buckets.empty_all(now)
            else:
                self._key_buckets.empty(names, now)

    def room(self, out: int, permits: int | None, now: float) -> int | None:
        """How many more may start while so many are out, with so many permits; None: any number."""
        free = self.free(out, permits)
        if self._bucket is None:
            return free
        tokens = self._bucket.tokens(now)
        return tokens if free is None else min(free, tokens)

    def free(self, out: int, permits: int | None) -> int | None:
        """How many more the limit and the permits let start; None: any number."""
        limit = self._rules.limit
        if permits is not None:
            limit = permits if limit is None else min(limit, permits)
        return None if limit is None else max(0, limit - out)

    def bucket_at(self, now: float) -> float:
        """When the partition has a token: now, or later."""
        return now if self._bucket is None else max(now, self._bucket.next_at())

    def spend(self, starts: int, now: float) -> None:
        if self._bucket is not None:
            self._bucket.spend(now, starts)

    def spend_of_key(self, key: Key, now: float) -> None:
        if self._key_buckets is not None and key.name is not None:
            self._key_buckets.spend(key.name, now)

    def wait_for_token(self, key: Key, job: int, now: float) -> bool:
        """Whether a key, whose next is this job, has no token; it then waits here for one."""
        if self._key_buckets is None or key.name is None:
            return False
        token_at = self._key_buckets.next_at(key.name)
        if token_at <= now:
            return False
        self.wait_until(token_at, key, job)
        return True

    def wait_until(self, at: float, key: Key, job: int) -> None:
        """Let a key, whose next is this job, wait here until then."""
        key.entry = (at, job, key)
        self._without_token.enter(key.entry, 0)

    def has_token(self, key: Key, now: float) -> bool:
        """Whether a job more of a key may start now by its own rate."""
        return self._key_buckets is None or key.name is None or self._key_buckets.next_at(key.name) <= now

    def take_with_token(self, now: float) -> list[Key]:
        """Take out the keys that have waited long enough."""
        keys: list[Key] = []
        while (token_at := self._without_token.first()) is not None and token_at <= now:
            key = self._without_token.next()
            if key is not None:
                keys.append(key)
        return keys

    def next_token_at(self) -> float | None:
        """When the first of the keys that wait here has waited long enough."""
        return self._without_token.first()
