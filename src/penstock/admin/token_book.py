"""The tokens as a server goes by them: read from the databases once a second at most, and asked about at each request.

A token that is revoked lets nobody in a second later, at whichever server and whichever shard it was revoked. Where no
database answers a server goes by what it last read, for half a minute: nearly all it could do for its callers fails
then anyway, and says why, and after a restart of the database nobody has been told that his token is none. After that
nobody is let in.

A secret that is unknown, one that has expired and one that was revoked look alike from outside: each takes the same
steps and no statement of its own. Secrets are looked up by their digests, so what of the time depends on how far two of
them agree tells nothing about a secret.
"""

from __future__ import annotations

import threading
from math import inf
from typing import NamedTuple

from penstock.admin.tokens import digest_of
from penstock.clock import Clock, system
from penstock.errors import PartitionUnavailable
from penstock.forking import renew_in_children
from penstock.model.token import Token
from penstock.shards.databases import Answers, Databases
from penstock.storage.catalogue import access_tokens
from penstock.storage.catalogue.access_tokens import StoredToken
from penstock.storage.connection.error_meaning import DatabaseError, refusal

__all__ = ["TokenBook"]

REREAD_SECONDS = 1.0
# So long a reading may take: whoever asks meanwhile waits for it.
ANSWER_SECONDS = 1.0
TRUST_SECONDS = 30.0


class _Entry(NamedTuple):
    """A token, and until when it is good, by this machine's clock."""

    token: Token | None
    until: float


_NOBODY = _Entry(None, -inf)


class TokenBook:
    """One for each server. Safe to use from any number of threads."""

    def __init__(self, databases: Databases, clock: Clock = system) -> None:
        self._databases = databases
        self._clock = clock
        # What each shard said last: one that is away now may be the only one to know that a token was revoked.
        self._told: dict[int, dict[bytes, _Entry]] = {}
        self._entries: dict[bytes, _Entry] = {}
        self._is_fresh_until = -inf
        self._read_at = -inf
        self._lock = threading.Lock()
        renew_in_children(self, TokenBook._renew_after_fork)

    def _renew_after_fork(self) -> None:
        """In a forked child: nobody is reading."""
        self._lock = threading.Lock()

    def find(self, secret: str) -> Token | None:
        """The token of a secret, while it is good. Raises PartitionUnavailable where who may come in is not known."""
        self._read_in_time()
        entry = self._entries.get(digest_of(secret), _NOBODY)
        return entry.token if self._clock.monotonic() < entry.until else None

    @property
    def has_any(self) -> bool:
        """Whether a token was ever made, also one that is revoked by now. Raises as `find` does."""
        self._read_in_time()
        return bool(self._entries)

    @property
    def is_fresh(self) -> bool:
        """Whether `find` answers without asking a database, and so without waiting."""
        return self._clock.monotonic() < self._is_fresh_until

    def reread(self) -> None:
        """Read before the next answer: somebody changed something that a reading under way may not have seen."""
        with self._lock:
            self._is_fresh_until = -inf

    def _read_in_time(self) -> None:
        if not self.is_fresh:
            # Who comes while another one reads waits for that: what is older may let in whom it must not.
            with self._lock:
                if not self.is_fresh:
                    self._read()
        if self._clock.monotonic() - self._read_at > TRUST_SECONDS:
            raise PartitionUnavailable(
                "no database has answered for so long that who may come in is not known any more; see that they run "
                "and accept connections, then call again"
            )

    def _read(self) -> None:
        began_at = self._clock.monotonic()
        answers = self._ask()
        if not answers.given:
            # Reckoned from the end: nobody waits again for what does not answer, at once.
            self._is_fresh_until = self._clock.monotonic() + REREAD_SECONDS
            return
        for shard, told in answers.given.items():
            self._told[shard] = {stored.digest: _entry(stored, began_at) for stored in told}
        entries: dict[bytes, _Entry] = {}
        for each in self._told.values():
            for digest, entry in each.items():
                # Where one says that it is revoked it is.
                entries[digest] = min(entries.get(digest, entry), entry, key=lambda entry: entry.until)
        self._entries = entries
        self._read_at = began_at
        self._is_fresh_until = began_at + REREAD_SECONDS

    def _ask(self) -> Answers[list[StoredToken]]:
        if all(database.breaker.is_down for database in self._databases):
            return Answers()
        try:
            return self._databases.each(access_tokens.read, timeout=ANSWER_SECONDS, writes=False)
        except PartitionUnavailable:
            return Answers()
        except DatabaseError as error:
            raise refusal(error) or error from error


def _entry(stored: StoredToken, read_at: float) -> _Entry:
    if stored.token.revoked_at is not None:
        return _Entry(stored.token, -inf)
    return _Entry(stored.token, inf if stored.seconds_left is None else read_at + stored.seconds_left)
