"""The pages of `penstock top`: the queues first, and from there what is in one, what is wrong there, who works."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.admin import newest_dead_letters
from penstock.app import App
from penstock.cli.live.attention import Concern, Weight
from penstock.cli.live.page import MOST_ROWS, Page, Row, Seen, View, weight_style
from penstock.cli.live.rows import COLUMNS, QueueRow
from penstock.cli.terminal import Column
from penstock.cli.times import ago, instant
from penstock.clock import system
from penstock.model import BlockedKey, Job, JobPage, State, Stats, WorkerInfo

__all__ = ["AttentionPage", "DeadPage", "HelpPage", "JobView", "KeysPage", "QueuePage", "QueuesPage", "WorkersPage"]

TEXT = [Column("")]

HELP = """\
up, down     another row; also j and k, Page Up, Page Down, Home, End
Enter        look into it: a queue's partitions, a job's error
Esc          back
h            the keys of the queue that are halted, until a person lets them go
             on, and those that are held for the retry of a job
d, D         dead letters of the queue; of all queues
w            the workers
a            everything that needs attention, worst first
p            pause the queue, or resume it
r            retry every dead letter of the queue, or the selected job
R            retry every dead letter of the page
x            release the selected key, if it is halted; its dead letter stays one
s, S         sort by another column, onwards or back
/            only queues with this in their name
Ctrl-L       draw the screen anew
q            leave, as with Ctrl-C

Whatever changes something asks first, and says of how many jobs.

attention    halted: keys wait for a person, since a job of theirs failed
             no worker: jobs wait, and no worker alive has their task
             failed: jobs became dead letters within the last hour
             grows: more comes in than leaves
in, out      jobs enqueued and ended a second, of the last seconds;
             a minute, where there are few
oldest       how long the first of those that wait has
running      3 of 5: at most five may run, by the queue's limits"""


class QueuesPage(Page):
    """Every queue."""

    hints = (
        "Enter open",
        "h keys",
        "d dead",
        "p pause",
        "r retry",
        "w workers",
        "s sort",
        "a attention",
        "/ filter",
    )

    def view(self, seen: Seen) -> View:
        """The queues, and above them what is wrong with any."""
        rows = [Row(each.queue.queue, each.cells(), _queue_styles(each), each) for each in seen.rows]
        empty = "there is no queue yet: declare one with app.queue(...), then enqueue or work"
        return View("", COLUMNS, rows, empty, seen.concerns, seen.order)


class QueuePage(Page):
    """One queue: its partitions, its rules, what is wrong with it."""

    hints = (
        "h keys",
        "d dead",
        "p pause",
        "r retry",
        "w workers",
        "Esc back",
    )
    COLUMNS = (
        Column("partition", is_cut=True),
        Column("waiting", "right"),
        Column("running", "right"),
        Column("oldest", "right"),
        Column("scheduled", "right"),
        Column("blocked", "right"),
        Column("dead", "right"),
        Column("shard", "right"),
        Column("owner", is_cut=True, is_spared=True),
    )

    def read(self, app: App) -> Stats:
        """Its figures."""
        return app.stats(self.queue or "")

    def view(self, seen: Seen) -> View:
        """Its partitions."""
        stats: Stats | None = self.data
        notes = [concern for concern in seen.concerns if concern.queue == self.queue]
        if stats is None:
            return View(f"queue {self.queue}", self.COLUMNS, (), "reading ...", notes)
        rows = [
            Row(
                part.name,
                [part.name, "?", "?", "", "?", "?", "?", f"{part.shard} (down)", ""]
                if part.shard in stats.unavailable
                else [
                    part.name,
                    f"{part.queue_length:,}",
                    f"{part.active_count:,}" if part.limit is None else f"{part.active_count:,} of {part.limit:,}",
                    ago(part.oldest_enqueued_at).removesuffix(" ago"),
                    f"{part.scheduled:,}",
                    f"{part.blocked:,}",
                    f"{part.dead:,}",
                    part.shard,
                    part.owner or "",
                ],
            )
            for part in stats.partitions
        ]
        rules = {name: value for name, value in msgspec.to_builtins(stats.rules).items() if value is not None}
        said = ", ".join(f"{name} {value}" for name, value in rules.items() if name != "paused")
        return View(f"queue {self.queue}{': ' if said else ''}{said}", self.COLUMNS, rows, "no partition", notes)


class KeysPage(Page):
    """The keys of a queue whose jobs wait: for a person, or for the retry of one of them."""

    hints = (
        "Enter the job",
        "x release the key",
        "r retry its job",
        "Esc back",
    )
    COLUMNS = (
        Column("key", is_cut=True),
        Column("is"),
        Column("since"),
        Column("again"),
        Column("by job", "right"),
        Column("so", is_cut=True, is_spared=True),
    )

    def read(self, app: App) -> list[BlockedKey]:
        """Those that have waited longest, the halted ones first."""
        queue = self.queue or ""
        halted = app.blocked_keys(queue, kind="halted", limit=MOST_ROWS)
        room = MOST_ROWS - len(halted)
        return [*halted, *(app.blocked_keys(queue, kind="held", limit=room) if room else ())]

    def view(self, seen: Seen) -> View:
        """A row for each key."""
        found: list[BlockedKey] | None = self.data
        rows = [
            Row(
                str(each.key),
                [
                    each.key if isinstance(each.key, str) else repr(each.key),
                    "halted" if each.until is None else "held",
                    ago(each.since),
                    "" if each.until is None else ago(each.until) if each.until > system.now() else "at once",
                    str(each.job_id),
                    each.reason.partition(": ")[2],
                ],
                {"is": "red"} if each.until is None else {},
                about=each,
            )
            for each in found or ()
        ]
        halted = sum(each.until is None for each in found or ())
        all_ = next((row.queue.halted_keys for row in seen.rows if row.queue.queue == self.queue), halted)
        held = f"{len(rows) - halted:,}{' or more' if len(rows) == MOST_ROWS else ''}"
        title = f"keys of queue {self.queue} that wait: {_of(halted, all_)} halted, {held} held"
        empty = "reading ..." if found is None else f"no key of queue {self.queue} is halted or held"
        return View(title, self.COLUMNS, rows, empty)


class DeadPage(Page):
    """Dead letters, the newest first: of a queue, or of all."""

    hints = (
        "Enter its error",
        "r retry it",
        "R retry all",
        "Esc back",
    )
    COLUMNS = (
        Column("id"),
        Column("queue/task", is_cut=True),
        Column("attempt", "right", is_spared=True),
        Column("failed", is_spared=True),
        Column("error", is_cut=True),
    )

    def read(self, app: App) -> JobPage:
        """The newest of them."""
        return newest_dead_letters(app.databases, self.queue, limit=MOST_ROWS)

    def view(self, seen: Seen) -> View:
        """A row for each job."""
        page: JobPage | None = self.data
        rows = [
            Row(
                str(each.id),
                [
                    str(each.id),
                    f"{each.queue}/{each.task}",
                    str(each.attempt),
                    ago(each.finished_at),
                    _first_line(each.error),
                ],
                {"error": "red"},
                each.id,
            )
            for each in (page.jobs if page is not None else ())
        ]
        wanted = [row.queue for row in seen.rows if self.queue in (None, row.queue.queue)]
        of = "" if self.queue is None else f" of queue {self.queue}"
        title = f"dead letters{of}: {_of(len(rows), sum(each.dead for each in wanted))}, newest first"
        return View(title, self.COLUMNS, rows, "reading ..." if page is None else f"there are no dead letters{of}")


class JobView(Page):
    """One job: why it does not run, its arguments, its errors."""

    hints = (
        "r retry it",
        "Esc back",
    )

    def __init__(self, job_id: int) -> None:
        super().__init__()
        self.job_id = job_id

    def read(self, app: App) -> tuple[Job, str]:
        """The job, and where it stands in words."""
        return app.job(self.job_id), app.explain(self.job_id).reason

    def view(self, seen: Seen) -> View:
        """Line by line."""
        lines = [] if self.data is None else _job_lines(*self.data)
        rows = [Row(str(number), [text]) for number, text in enumerate(lines)]
        return View(f"job {self.job_id}", TEXT, rows, "reading ...", folds=True)


class WorkersPage(Page):
    """The workers that are alive."""

    hints = ("Esc back",)
    COLUMNS = (
        Column("worker", is_cut=True),
        Column("running", "right"),
        Column("a minute", "right"),
        Column("started", is_spared=True),
        Column("heard of"),
        Column("queues", is_cut=True, is_spared=True),
        Column("host", is_cut=True, is_spared=True),
        Column("pid", "right", is_spared=True),
    )

    def read(self, app: App) -> list[WorkerInfo]:
        """All of them."""
        return app.workers()

    def view(self, seen: Seen) -> View:
        """A row for each."""
        found: list[WorkerInfo] | None = self.data
        rows = [
            Row(
                f"{each.id} {each.name}",
                [
                    each.name,
                    f"{each.running:,} of {each.concurrency:,}",
                    "" if each.ended_last_minute is None else f"{each.ended_last_minute:,}",
                    ago(each.started_at),
                    ago(each.renewed_at),
                    ", ".join(each.queues),
                    each.host,
                    str(each.pid),
                ],
            )
            for each in found or ()
        ]
        empty = "reading ..." if found is None else "no worker is alive: penstock work MODULE:APP starts one"
        working = sum(each.concurrency > 0 for each in found or ())
        beside = f", and {len(rows) - working:,} acting for others, as a server does" if len(rows) > working else ""
        return View(f"workers: {working:,}{beside}", self.COLUMNS, rows, empty)


class AttentionPage(Page):
    """Everything that is wrong, in sentences."""

    hints = (
        "Enter its queue",
        "Esc back",
    )

    def view(self, seen: Seen) -> View:
        """A row for each, worst first."""
        rows = [
            Row(
                f"{each.queue} {each.word}" if each.queue else each.text,
                [each.text],
                {"": weight_style(each.weight)},
                each.queue,
            )
            for each in seen.concerns
        ]
        return View("what needs attention, worst first", TEXT, rows, "nothing needs attention")


class HelpPage(Page):
    """What the keys do."""

    hints = ("Esc back",)

    def view(self, seen: Seen) -> View:
        """Line by line."""
        rows = [Row(str(number), [text]) for number, text in enumerate(HELP.splitlines())]
        return View("penstock top: keys", TEXT, rows, "", folds=True)


def _queue_styles(row: QueueRow) -> dict[str, str]:
    worst: Concern | None = min(row.concerns, key=lambda concern: concern.weight, default=None)
    styles = {"attention": weight_style(worst.weight)} if worst is not None else {}
    if worst is not None and worst.weight < Weight.NOTE:
        styles["queue"] = "bold"
    if row.queue.dead:
        styles["dead"] = "yellow"
    return styles


def _of(shown: int, all_: int) -> str:
    return f"{shown:,}" if all_ <= shown else f"{shown:,} of {all_:,}"


def _first_line(error: str | None) -> str:
    """The line that says what it was."""
    lines = (error or "").strip().splitlines()
    return lines[0] if lines else ""


def _job_lines(job: Job, reason: str) -> list[str]:
    facts: dict[str, object] = {
        "state": job.state.value,
        "why": reason if job.state not in (State.SUCCEEDED, State.FAILED) else "",
        "queue": job.queue,
        "task": job.task,
        "arguments": msgspec.json.encode(job.args).decode(),
        "key": job.key,
        "attempts": job.attempt,
        "enqueued": _when(job.enqueued_at),
        "started": _when(job.started_at),
        "finished": _when(job.finished_at),
        "worker": job.worker,
        "load": job.load,
    }
    width = max(map(len, facts)) + 2
    lines = [f"{name:{width}}{value}" for name, value in facts.items() if value not in (None, "")]
    for each in reversed(job.failures):
        lines += ["", f"failure {each.attempt}, {_when(each.at)}", *(f"  {text}" for text in each.error.splitlines())]
    return lines


def _when(at: datetime | None) -> str:
    return instant(at)
