"""A worker: runs the jobs of some queues in this process until it is told to stop, or there is nothing left to do.

site        its part for one database, in a thread of its own; it has
  conductor   settles and claims, the one conversation about jobs with that database
  line        jobs claimed there and not started
  heart       keeps the worker alive in the eyes of the others
  listener    hears producers
floor       the slots, which run the jobs of all sites
threads     run plain handlers      lanes   run async ones      children   run handlers in processes
watch       finds handlers that do not come back, and a blocked event loop
quiet       whether all sites are idle in the same moment
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.clock import system
from penstock.errors import PenstockError
from penstock.storage.database import Database
from penstock.worker.database_worker import Identity, Site, Sweeper
from penstock.worker.event_loop import Lanes
from penstock.worker.hooks import Hooks
from penstock.worker.idle_rounds import Quiet
from penstock.worker.served_queues import Served
from penstock.worker.slot_pool import Floor
from penstock.worker.threads import Threads
from penstock.worker.watchdog import Watch

__all__ = ["FoundSite", "Worked", "Worker"]

log = logging.getLogger("penstock")

# How often it is looked for databases that were added.
FIND_SECONDS = 2.0
# How long a site whose database is away, and one whose database answers, may take to leave.
HURRIED_SECONDS, PATIENT_SECONDS = 1.0, 15.0


class Worked(NamedTuple):
    """What came of one call of `app.work`: attempts by their end, and the jobs of dead workers that upkeep rescued."""

    succeeded: int
    retried: int
    failed: int
    rescued: int


class FoundSite(NamedTuple):
    """A database to work on: its number as a shard, and the queues with the partitions that live there."""

    number: int
    database: Database
    served: Sequence[Served]


class Worker:
    """One call of `app.work`.

    `find_sites` gives the databases that are not among the numbers given: it is asked at the start, and then every few
    seconds for those that were added. `sweepers` makes the upkeep of a database. Once it is told to stop, handlers may
    take `grace_seconds` to end.
    """

    def __init__(
        self,
        find_sites: Callable[[Collection[int]], Sequence[FoundSite]],
        *,
        concurrency: int,
        lease_seconds: float,
        grace_seconds: float,
        version: str,
        hooks: Hooks,
        sweepers: Callable[[Database], Sweeper],
    ) -> None:
        self._find_sites = find_sites
        self._hooks = hooks
        self._sweepers = sweepers
        self._identity = Identity(
            instance=str(uuid.uuid4()),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version,
            concurrency=concurrency,
            lease_seconds=lease_seconds,
        )
        self._lanes = Lanes(hooks)
        self._floor = Floor(concurrency, self._lanes.wake)
        self._threads = Threads(self._floor, hooks)
        self._quiet: Quiet | None = None
        self._sites: dict[int, Site] = {}
        self._site_threads: dict[Site, threading.Thread] = {}
        self._at_work: set[Site] = set()
        self._stop_at: float | None = None
        self._is_hurried = False
        self._problem: BaseException | None = None
        self._grace_seconds = grace_seconds
        self._watch = Watch(self._floor, self._lanes, grace_seconds)
        # Guards the sites, and notified when one has ended its work; the floor is closed when all have.
        self._changed = threading.Condition(threading.RLock())
        self._may_close = threading.Event()

    def run(self, *, until_idle: bool = False) -> None:
        """Work. Before it returns everything that ran is settled and everything else handed back."""
        if until_idle:
            self._quiet = Quiet(self._wake)
        sites = [self._site(found) for found in self._find_sites(())]
        if len(sites) == 1:
            # There is nobody else to go on with: whoever called should know.
            sites[0].register()
        if any(task.is_async for site in sites for queue in site.served for task in queue.tasks.values()):
            self._lanes.start(self._floor)
        for site in sites:
            self._start(site)
        threading.Thread(target=self._find_further, name="penstock-sites", daemon=True).start()
        self._wait_for_sites()
        self._floor.close()
        self._threads.join()
        self._lanes.join()
        self._close()
        self._hooks.wait_until_told(HURRIED_SECONDS if self._is_hurried else PATIENT_SECONDS)
        if self._problem is not None:
            raise self._problem

    def worked(self, rescued: int) -> Worked:
        """What came of it."""
        counts: Counter[str] = Counter()
        for site in self._sites.values():
            counts.update(site.counts)
        return Worked(counts["succeeded"], counts["retry"], counts["failed"], rescued)

    def stop(self, *, may_hurry: bool = True) -> None:
        """From any thread or signal handler: end gently. Asked again: at once, without waiting for handlers."""
        with self._changed:
            if self._stop_at is None:
                self._stop_at = system.monotonic() + self._grace_seconds
            elif may_hurry:
                self._stop_at = 0.0
                self._is_hurried = True
            for site in self._sites.values():
                site.stop(self._stop_at)
            self._changed.notify_all()

    def _end_with(self, problem: PenstockError) -> None:
        """From any thread: end gently, and with this error."""
        if self._problem is None:
            log.error("%s", problem)
            self._problem = problem
            self.stop(may_hurry=False)

    def _site(self, found: FoundSite) -> Site:
        site = Site(
            found.number,
            found.database,
            found.served,
            identity=self._identity,
            floor=self._floor,
            start_threads=self._threads.start,
            hooks=self._hooks,
            sweeper=self._sweepers(found.database),
            quiet=self._quiet,
            is_alone=lambda: len(self._sites) == 1,
            end_with=self._end_with,
        )
        self._sites[found.number] = site
        return site

    def _start(self, site: Site) -> None:
        with self._changed:
            if self._stop_at is not None:
                site.stop(self._stop_at)
            name = f"penstock-site-{site.number}"
            thread = threading.Thread(target=self._run_site, args=(site,), name=name, daemon=True)
            self._site_threads[site] = thread
            self._at_work.add(site)
            thread.start()

    def _run_site(self, site: Site) -> None:
        try:
            site.work()
        except BaseException as error:  # It goes to whoever called `run`, when the others have ended too.
            self._problem = self._problem or error
            self.stop(may_hurry=False)
        with self._changed:
            self._at_work.discard(site)
            self._changed.notify_all()
        self._may_close.wait()
        site.close()

    def _find_further(self) -> None:
        while not self._may_close.wait(FIND_SECONDS):
            try:
                found = self._find_sites(set(self._sites))
            except PenstockError as error:
                log.debug("databases that were added could not be looked for: %s", error)
                continue
            with self._changed:
                for each in found:
                    if self._stop_at is None:
                        log.info("shard %d was added, and is worked on", each.number)
                        self._start(self._site(each))

    def _wait_for_sites(self) -> None:
        """Wait until all have ended their work, but not for one whose database is away and keeps it."""
        while True:
            stuck = self._watch.look()
            if stuck is not None:
                self._end_with(stuck)
            with self._changed:
                if not self._at_work:
                    # None is taken up any more.
                    self._stop_at = self._stop_at or system.monotonic()
                    return
                self._changed.wait(self._watch.patience)
                self._leave_out_silent()
                for site in [site for site in self._at_work if site.is_given_up(HURRIED_SECONDS)]:
                    log.warning("%s does not answer; the worker ends without it", site.database.breaker.label)
                    self._at_work.discard(site)

    def _leave_out_silent(self) -> None:
        if self._quiet is None or not self._quiet.is_over:
            return
        for site in self._at_work:
            if site.is_silent and not site.is_stopping:
                log.warning(
                    "%s does not answer, and all others are idle: the worker ends; what waits there was not looked at",
                    site.database.breaker.label,
                )
                site.stop(0.0)

    def _close(self) -> None:
        began_at = system.monotonic()
        self._may_close.set()
        for site, thread in self._site_threads.items():
            patience = HURRIED_SECONDS if site.is_away or site.database.breaker.is_down else PATIENT_SECONDS
            thread.join(max(began_at + patience - system.monotonic(), 0.0))

    def _wake(self) -> None:
        for site in list(self._sites.values()):
            site.wake()
