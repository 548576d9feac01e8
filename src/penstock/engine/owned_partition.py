"""A partition that is an owner's: what was read of it, and how far.

Of rows that are ready the roster gets the jobs, one by one or, where a whole range is of one key, as a range: such jobs
are read with their arguments when they start. Few jobs are kept with their arguments, to be started without reading
them again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice

from penstock.policy.roster import JobTuple, Roster
from penstock.storage.connection.database import Connection
from penstock.storage.enqueue.job_group import RANGE
from penstock.storage.work import owner as storage
from penstock.storage.work.leases import Lease, LeasedJob, Stored
from penstock.storage.work.owner import Look, Ownership, ReadyRow, Stretch
from penstock.storage.work.set_aside import set_aside

__all__ = ["FEWEST_ROWS", "JOBS_A_LOOK", "OwnedPartition"]

# How many rows, and about how many jobs, a look reads.
FEWEST_ROWS, MOST_ROWS = 16, 8_192
JOBS_A_LOOK = 4_096
# So many jobs without a handler are looked for at a time.
MOST_UNKNOWN = 2_000
# So many jobs are kept with their arguments at most.
MOST_KEPT = 16_384
# Of a range of one key so many jobs are read when the first of them starts.
JOBS_READ_ON = 256
# A range this large may be all of one key, which is worth asking.
WORTH_ASKING = 64


@dataclass(slots=True)
class OwnedPartition:
    """A partition that is the owner's, and how far it has read it."""

    ownership: Ownership
    roster: Roster
    is_fair: bool
    # The tasks of its queue that this worker has handlers for.
    tasks: Container[str] = frozenset()
    # What the roster is told of a job of a task of which several are taken together: in a batch, or in a run.
    marks: Mapping[str, int] = field(default_factory=dict)
    # So many jobs may start in one slot: those of a batch.
    most_in_slot: int = 1
    read_to: list[int] = field(default_factory=lambda: [0] * 10)
    as_of: str | None = None
    rows: int = FEWEST_ROWS
    # Whether the last look found nothing beyond what it read.
    is_read: bool = False
    looked_at: float = 0.0
    others_at: float = 0.0
    # Whether anything the roster did not start keeps its jobs back: what others run, keys that are held or halted,
    # earlier key maps.
    has_outside_holds: bool = True
    # The newest key map that was seen: jobs that were routed by a newer one wait until that is known.
    newest_key_map: int = 0
    is_withheld: bool = False
    is_noted_idle: bool = False
    # Jobs as they were read ahead, with their arguments.
    read_ahead: dict[int, LeasedJob] = field(default_factory=dict)
    # By range, from which position on and up to which jobs were added to the roster without reading each of them.
    unread: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Jobs of it that were leased and have not ended, as far as the owner was told.
    out: set[int] = field(default_factory=set)
    # Of those, the ones leased to another holder than the owner itself, which may not hear of their ends.
    leased_to_others: set[int] = field(default_factory=set)
    # Jobs without a handler here, as they stand in the roster: one that is cancelled must not hold its key for ever.
    unknown: dict[int, JobTuple] = field(default_factory=dict)
    # Jobs that were rescued, and how often: they run with few beside them.
    rescued: dict[int, int] = field(default_factory=dict)
    # Chosen, and put off for a moment since they were rescued, or there are no permits or tokens for them.
    postponed: list[int] = field(default_factory=list)

    def lacks(self, wanted: int) -> bool:
        """Whether fewer jobs could start, of what was read, than are wanted for so many slots."""
        return self.roster.startable < wanted or (
            self.most_in_slot > 1 and self.roster.waiting < wanted * self.most_in_slot
        )

    def count(self, jobs: Sequence[int]) -> int:
        """How many jobs these are, where some stand for a batch."""
        batches = self.roster.batches
        return sum(len(batches.get(job, (job,))) for job in jobs) if batches else len(jobs)

    def drop_postponed(self, jobs: Set[int]) -> None:
        """Choose these no more: they wait in the roster again."""
        batches = self.roster.batches
        postponed = []
        for job in self.postponed:
            left = [each for each in batches.pop(job, (job,)) if each not in jobs]
            if left:
                postponed.append(left[0])
                if len(left) > 1:
                    batches[left[0]] = left
        self.postponed = postponed

    def note_look(self, connection: Connection, seen: Look, now: float) -> None:
        """Take in what a look saw: jobs for the roster, what others do, and how far it was read."""
        facts = storage.read_single_keys(
            connection, [row for row in seen.rows if row.members is None and row.high - row.low >= WORTH_ASKING]
        )
        mixed = [row for row in seen.rows if row.members is not None or _bounds(row) not in facts]
        # A whole range of one key costs no more than a job.
        read = len(facts) + (self._add_mixed(connection, mixed) if mixed else 0)
        tasks = self.tasks
        marks = self.marks
        for row in seen.rows:
            if self.postponed:
                # A postponed job that was written anew meanwhile is in the roster again.
                self.drop_postponed({row.range * RANGE + position for position in row.positions})
            if row.rescues:
                base = row.range * RANGE
                self.rescued.update(dict.fromkeys((base + position for position in row.positions), row.rescues))
            only = facts.get(_bounds(row)) if row.members is None else None
            if only is not None:
                rank = row.ready_at + 60.0 * row.priority
                key, tenant, is_known = only.key, only.tenant or "", only.task in tasks
                mark = marks.get(only.task, is_known) if row.is_fresh else is_known
                jobs = range(row.range * RANGE + row.low, row.range * RANGE + row.high)
                self.unread[row.range] = row.low, row.high
                self.roster.add_alike(jobs, key, row.priority, row.pos, rank, tenant, row.epoch, mark)
                if not is_known:
                    self.unknown |= {
                        job: (job, key, row.priority, row.pos, rank, tenant, row.epoch, True) for job in jobs
                    }
        for priority in range(10):
            if seen.found[priority]:
                self.read_to[priority] = seen.ends[priority]
        self.as_of = seen.as_of
        self.looked_at = now
        self.roster.permits = seen.permits
        self.roster.tokens = seen.tokens
        self.is_read = max(seen.found) < self.rows
        if read < JOBS_A_LOOK // 2 and not self.is_read:
            self.rows = min(self.rows * 2, MOST_ROWS)
        elif read > JOBS_A_LOOK * 2:
            self.rows = max(self.rows // 2, FEWEST_ROWS)
        if seen.running is not None and seen.held is not None and seen.halted is not None:
            self.others_at = now
            elsewhere = [(job, key) for job, key in seen.running if job not in self.out]
            self.roster.set_elsewhere(elsewhere, seen.unstarted)
            self.roster.set_held(seen.held)
            self.roster.set_halted(seen.halted)
            self.has_outside_holds = bool(elsewhere or seen.held or seen.halted)
            if self.unknown:
                self._look_for_unknown(connection)
        if seen.key_maps is not None:
            self.newest_key_map = max(seen.key_maps.partitions, default=0)
            self.roster.set_key_maps(seen.key_maps.partitions, seen.key_maps.open, seen.key_maps.held)
            self.has_outside_holds |= len(seen.key_maps.partitions) > 1
        if any(row.epoch > self.newest_key_map for row in seen.rows):
            self.has_outside_holds, self.others_at = True, 0.0

    def _look_for_unknown(self, connection: Connection) -> None:
        """See whether jobs without a handler here still wait: one that does not is let go, and found gone."""
        some = dict(islice(self.unknown.items(), MOST_UNKNOWN))
        ready = storage.still_ready(connection, self.ownership.partition_id, some)
        self.roster.add([each for job, each in some.items() if job not in ready])
        for job, each in some.items():
            del self.unknown[job]
            if job in ready:
                self.unknown[job] = each  # At the end: the others have their turn first.

    def _add_mixed(self, connection: Connection, rows: Sequence[ReadyRow]) -> int:
        """Read the jobs of rows, whatever their keys, and add them to the roster; how many."""
        # Few are kept with their arguments, to be started without reading them again: those that may start at once.
        with_args = len(self.read_ahead) < MOST_KEPT
        stored = storage.read_waiting(connection, rows, with_args=with_args, with_tenant=self.is_fair)
        if stored.unreadable:
            # Its key is not known, and so it holds none.
            set_aside(connection, stored.unreadable)
        if with_args:
            self.read_ahead.update(stored)
        # One by one, as they are taken over: kept together, they would be looked through again and again for garbage.
        self.roster.add(self._waiting_of(rows, stored))
        return len(stored)

    def _waiting_of(self, rows: Sequence[ReadyRow], stored: Stored) -> Iterator[JobTuple]:
        """What the roster is told of the jobs of these rows."""
        tasks = self.tasks
        by_range = {row.range: row for row in rows}
        row_of = by_range if len(by_range) == len(rows) else None
        of_job = {} if row_of else {row.range * RANGE + p: row for row in rows for p in row.positions}
        marks = self.marks
        # Most have row and task in common with the one before.
        row, before = None, None
        for job, _, key, _, task, tenant in stored.values():
            its_row = row_of[job // RANGE] if row_of else of_job[job]
            if its_row is not row or task != before:
                row, before = its_row, task
                priority, pos, epoch = row.priority, row.pos, row.epoch
                rank = row.ready_at + 60.0 * priority
                is_unknown = task not in tasks
                is_known: int = not is_unknown
                if marks and row.is_fresh:
                    is_known = marks.get(task, is_known)
            if is_unknown:
                self.unknown[job] = (job, key, priority, pos, rank, tenant or "", epoch, True)
            yield job, key, priority, pos, rank, tenant or "", epoch, is_known

    def take_read_ahead(self, lease: Lease) -> dict[int, LeasedJob]:
        """Give out the jobs of a lease that were read ahead with their arguments."""
        found = {}
        base = lease.range * RANGE
        for position in lease.positions:
            read_ahead = self.read_ahead.pop(base + position, None)
            if read_ahead is not None and read_ahead[1] is not None:
                found[base + position] = read_ahead
        return found

    def has_unread(self, lease: Lease) -> bool:
        """Whether jobs of a lease are of a range that was not read job by job."""
        return self._next_unread(lease) is not None

    def read_on(self, connection: Connection, lease: Lease) -> None:
        """Read jobs of such a range ahead, from the first that is leased on."""
        rest = self._next_unread(lease)
        if rest is None:
            return
        first, to, high = rest
        if to < high:
            self.unread[lease.range] = to, high
        else:
            del self.unread[lease.range]
        stretch = Stretch(lease.range, first, to)
        self.read_ahead.update(storage.read_waiting(connection, [stretch], with_args=True, with_tenant=False))

    def _next_unread(self, lease: Lease) -> tuple[int, int, int] | None:
        """What to read of the lease's range: from where, up to where, and where it ends."""
        unread = self.unread.get(lease.range)
        if unread is None or len(self.read_ahead) >= MOST_KEPT:
            return None
        first, (low, high) = lease.positions[0], unread
        if not low <= first < high:
            return None
        return first, min(max(first + JOBS_READ_ON, lease.positions[-1] + 1), high), high


def _bounds(row: ReadyRow) -> tuple[int, int]:
    """The first and the last job of a row that has all jobs between them."""
    return row.range * RANGE + row.low, row.range * RANGE + row.high - 1
