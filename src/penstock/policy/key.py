"""What the owner of a partition knows of one key: what waits, what is out, and why nothing more of it starts."""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.policy.job_sequence import AHEAD, BEHIND, ID, KNOWN, RANK, JobSequence

__all__ = ["AWAY", "BUSY", "DRAINING", "EMPTY", "INERT", "READY", "Key", "ReadyEntry"]


# Why the next job of a key does not start; `Roster._standing` says which, where several apply. From BUSY on a key is
# hopeful, and the owner not idle: its next job may start, or will when jobs have ended here or in another partition.
# Plain numbers: a member of an Enum costs a tenth of a microsecond to look up, ten times for each job.
AWAY: Final = -1  # a job of it that an older key map sent elsewhere is held or halted there
EMPTY: Final = 0
INERT: Final = 1  # held, halted, or without a handler here: nothing the owner does will change it
BUSY: Final = 2  # as many as may be are out
DRAINING: Final = 3  # another partition may still have jobs of it by an older key map
READY: Final = 4  # it may: only the partition's limit and the rates are left to ask


class Key:
    """One key. The jobs of a tenant without a key share one of these, in which none waits for another to end."""

    __slots__ = (
        "elsewhere",
        "entry",
        "holds",
        "name",
        "others",
        "out",
        "sequence",
        "standing",
        "startable",
        "tenant",
        "unstarted",
        "waiting",
    )

    def __init__(self, name: bytes | None, tenant: str = "") -> None:
        self.name = name
        # Of jobs without a key.
        self.tenant = tenant
        # The sequence whose head is next, and those that wait beside it: most keys have none.
        self.sequence: JobSequence | None = None
        self.others: list[JobSequence] | None = None
        self.waiting = 0
        self.out = 0
        self.elsewhere = 0
        # Of those elsewhere, how many may come back without having started.
        self.unstarted = 0
        self.holds = 0
        self.standing: int = EMPTY
        self.startable = 0
        # Its entry among the keys that are ready. One that is not this very object is out of date.
        self.entry: ReadyEntry | None = None

    def add(self, epoch: int, priority: int, pos: int, job: int, rank: int, mark: int) -> int:
        """Add a job to its sequence; `KNOWN`, `BEHIND` or `AHEAD`."""
        sequence = self.sequence
        if sequence is None:
            sequence = self.sequence = JobSequence(epoch, priority)
        elif sequence.priority != priority or sequence.epoch != epoch:
            return self._add_beside(epoch, priority, pos, job, rank, mark)
        where = sequence.add(pos, job, rank, mark)
        if where:
            self.waiting += 1
            if where == AHEAD and self.others:
                self._choose()
        return where

    def sequence_before(self, epoch: int, priority: int, pos: int, job: int) -> JobSequence | None:
        """The sequence at whose end a job belongs; None where there is none, or the job belongs further ahead."""
        if self.sequence is None:
            self.sequence = JobSequence(epoch, priority)
        for sequence in (self.sequence, *(self.others or ())):
            if sequence.priority == priority and sequence.epoch == epoch:
                return sequence if sequence.ends_before(pos, job) else None
        return None

    def pop(self) -> int:
        """Take the next job out."""
        sequence = self.sequence
        assert sequence is not None  # noqa: S101 - who calls this has looked
        job = sequence.pop()
        self.waiting -= 1
        if self.others:
            self._choose()
        elif sequence.at == len(sequence.first):
            self.sequence = None
        return job

    def _add_beside(self, epoch: int, priority: int, pos: int, job: int, rank: int, mark: int) -> int:
        self.others = self.others or []
        sequence = next(
            (sequence for sequence in self.others if sequence.priority == priority and sequence.epoch == epoch), None
        )
        if sequence is None:
            sequence = JobSequence(epoch, priority)
            self.others.append(sequence)
        if not sequence.add(pos, job, rank, mark):
            return KNOWN
        self.waiting += 1
        before = self.sequence
        self._choose()
        return AHEAD if self.sequence is not before else BEHIND

    def _choose(self) -> None:
        """The sequence of the oldest key map is next, since newer ones may wait for it; of those that of least rank."""
        sequences = [
            sequence
            for sequence in (self.sequence, *(self.others or ()))
            if sequence is not None and not sequence.is_empty
        ]
        self.sequence = min(
            sequences,
            key=lambda sequence: (sequence.epoch, sequence.first[sequence.at + RANK], sequence.first[sequence.at + ID]),
            default=None,
        )
        self.others = [sequence for sequence in sequences if sequence is not self.sequence] or None


ReadyEntry: TypeAlias = tuple[float, int, Key]
"""A ready key, in the order of starts: the rank of its next job, and its id to tell equals apart."""
