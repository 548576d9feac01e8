"""What keeps a key from going on: a job of it that will come back, or a halt that waits for a person.

Both are learned in two ways: at once, from a job that ended here, and from each snapshot of the tables, which has those
of earlier owners and shows when one is over. A snapshot may be older than what was learned here since. So what was
learned here survives one snapshot that does not name it; not a second one, nor any after one that named it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.policy.key import Key

__all__ = ["KeyHalts", "KeyHolds"]


class _Hold:
    __slots__ = ("is_release", "key", "survives")

    def __init__(self, key: Key, survives: int, is_release: bool) -> None:
        self.key = key
        self.survives = survives
        self.is_release = is_release


class KeyHolds:
    """The jobs that hold their key: retries and snoozes that keep their `pos`, and releases not read again yet."""

    __slots__ = ("_held", "releases")

    def __init__(self) -> None:
        self._held: dict[int, _Hold] = {}
        self.releases = 0

    def __contains__(self, job: int) -> bool:
        return job in self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def begin(self, job: int, key: Key, *, survives: int, is_release: bool = False) -> None:
        if job not in self._held:
            self._held[job] = _Hold(key, survives, is_release)
            key.holds += 1
            self.releases += is_release

    def end(self, job: int) -> Key:
        hold = self._held.pop(job)
        hold.key.holds -= 1
        self.releases -= hold.is_release
        return hold.key

    def replace(self, named: Mapping[int, Key]) -> set[Key]:
        """Go by a snapshot; the keys for which something changed."""
        changed: set[Key] = set()
        for job, hold in list(self._held.items()):
            if job in named:
                hold.survives = 0
            elif hold.survives:
                hold.survives -= 1
            else:
                changed.add(self.end(job))
        for job, key in named.items():
            if job not in self._held:
                self.begin(job, key, survives=0)
                changed.add(key)
        return changed


class KeyHalts:
    """The keys that wait for a person."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        # How many snapshots more each survives that do not name it.
        self.names: dict[bytes, int] = {}

    def begin(self, name: bytes) -> None:
        self.names[name] = 1

    def replace(self, named: Collection[bytes]) -> set[bytes]:
        """Go by a snapshot; the keys for which something changed."""
        before = self.names
        unknown_yet = {name for name, survives in before.items() if survives and name not in named}
        self.names = dict.fromkeys([*named, *unknown_yet], 0)
        return before.keys() ^ self.names.keys()
