"""The rules a history is judged by, after the faults have stopped and the queue has drained.

Every finding is definite: what nobody could know (an answer that was lost, a process that was killed) never counts
against the queue. "Sometimes" counters tell whether the run got into the trouble it was made for: one that never did
proves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.judge.history import Event
from tests.judge.keys import attempts_of, batch_findings, most_at_once, order_findings, over_the_limit, overlap_findings
from tests.judge.snapshot import Snapshot

__all__ = ["Verdict", "judge"]

_ENDS = ("succeeded", "failed", "cancelled", "discarded", "expired")
# Where `penstock.depth` counts the jobs of a state.
_COUNTED = {"opened": ("ready", "running"), "scheduled": ("scheduled",), "blocked": ("blocked",), "dead": ("failed",)}


@dataclass(slots=True)
class Verdict:
    """What was found, by rule, and how often something happened that the run was made for."""

    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sometimes: Counter[str] = field(default_factory=Counter)

    def flag(self, rule: str, what: str) -> None:
        self.findings[rule].append(what)

    def require(self, *names: str) -> None:
        """Raise unless nothing was found and each of these happened at least once."""
        if self.findings:
            shown = "; ".join(f"{rule}: {len(found)}, e.g. {found[0]}" for rule, found in self.findings.items())
            raise AssertionError(shown)
        if missing := [name for name in names if not self.sometimes[name]]:
            raise AssertionError(f"the run proves nothing, it never came to: {', '.join(missing)}")


def judge(
    history: Sequence[Event],
    final: Snapshot,
    *,
    ordered: Iterable[str] = (),
    per_key: Mapping[str, int] = MappingProxyType({}),
    limits: Mapping[str, int] = MappingProxyType({}),
    batched: Collection[str] = (),
    in_runs: Collection[str] = (),
    forgets: bool = False,
) -> Verdict:
    """Judge a drained run.

    `ordered`: the groups whose jobs one worker with one slot ran. By queue, where a job's group is `queue/key`:
    `per_key`, the jobs of a key start in order, so many at a time; `limits`, so many run at a time, in all partitions
    on whichever shards, until the history says that the limit is another. `batched`: those queues whose handlers are
    given several jobs together; a batch counts as one for `per_key`, and may be run again as its jobs. `in_runs`: those
    of which several jobs of a key are taken in one go.
    `forgets`: jobs that ended were pruned; one that is not stored must have been run to its end.
    """
    verdict = Verdict()
    gone = _pruned(history, final) if forgets else set()
    _check_enqueues(verdict, history, final, gone)
    _check_places(verdict, final, forgets=forgets)
    _check_runs(verdict, history, final, gone)
    _check_settles(verdict, history, final, gone)
    for group in ordered:
        _check_order(verdict, history, group)
    for queue, most_of_a_key in per_key.items():
        is_together = queue in batched or queue in in_runs
        _check_keys(verdict, _of_queue(history, queue), most_of_a_key, is_together=is_together)
        if queue in in_runs:
            _check_last_starts(verdict, _of_queue(history, queue))
    verdict.sometimes["a batch of several"] = _count_batches(history)
    for queue, limit in limits.items():
        attempts = attempts_of(_of_queue(history, queue))
        verdict.sometimes["a limit reached"] += most_at_once(attempts) >= limit
        for most, allowed in over_the_limit(attempts, _limits_of(history, queue, limit)):
            verdict.flag("over the limit", f"{most} at once, the limit is {allowed}")
    return verdict


def _of_queue(history: Sequence[Event], queue: str) -> list[Event]:
    """What happened to the jobs of a queue, also to those that nobody was told of, and to everybody."""
    mine = [event for event in history if event.act == "enqueue" and event.group.startswith(f"{queue}/")]
    labels, jobs = {event.label for event in mine}, {event.job for event in mine if event.job}
    return [
        event
        for event in history
        if event.act == "stop" or event.label in labels or (event.act == "settle" and event.job in jobs)
    ]


def _limits_of(history: Sequence[Event], queue: str, limit: int) -> list[tuple[int, int]]:
    """From when on how many may run at most: while a limit is changed, as many as by the higher of the two."""
    limits = [(0, limit)]
    for event in history:
        if event.act == "limit" and event.group == queue:
            limits.append((event.at, event.attempt if event.type == "ok" else max(limits[-1][1], event.attempt)))
    return limits


def _pruned(history: Sequence[Event], final: Snapshot) -> set[int]:
    """Jobs that are not stored, and whose handlers returned."""
    return {event.job for event in history if event.act == "run" and event.type == "ok"} - final.labels.keys()


def _check_enqueues(verdict: Verdict, history: Sequence[Event], final: Snapshot, gone: set[int]) -> None:
    tried = {event.label for event in history if event.act == "enqueue" and event.type == "invoke"}
    refused = {event.label for event in history if event.act == "enqueue" and event.type == "fail"}
    accepted = {event.label: event.job for event in history if event.act == "enqueue" and event.type == "ok"}
    stored: dict[str, list[int]] = defaultdict(list)
    for job, label in final.labels.items():
        stored[label].append(job)
    ended = {event.label for event in history if event.act == "run" and event.job in gone}
    for label, job in accepted.items():
        if label not in stored:
            if label not in ended and job not in gone:
                verdict.flag("acknowledged and lost", label)
        elif job and job not in stored[label]:  # Who loads is told no ids.
            verdict.flag("acknowledged under an id that is not its own", f"{label}: {job}")
    for label, jobs in stored.items():
        if label not in tried:
            verdict.flag("from nowhere", label)
        if len(jobs) > 1:
            verdict.flag("written twice", f"{label}: {jobs}")
        if label in refused and label not in accepted:
            verdict.flag("refused and yet written", label)
    runs: dict[str, set[int]] = defaultdict(set)
    for event in history:
        if event.act == "run" and event.label:
            runs[event.label].add(event.job)
    for label, run in runs.items():
        if len(run | set(stored[label])) > 1 and len(stored[label]) < 2:
            verdict.flag("written twice", f"{label}: {sorted(run | set(stored[label]))}")
    unknown = {event.label for event in history if event.act == "enqueue" and event.type == "unknown"}
    verdict.sometimes["an enqueue of unknown outcome"] = len(unknown)
    verdict.sometimes["an enqueue refused"] = len(refused)


def _check_places(verdict: Verdict, final: Snapshot, *, forgets: bool) -> None:
    """Each stored job is in one place, an end; nothing else is anywhere; the totals say the same."""
    found = Counter(job for job, _ in final.places)
    for job in final.labels.keys() - found.keys():
        if not forgets:  # Its end may have been pruned before it.
            verdict.flag("in no state", str(job))
    for job in found.keys() - final.labels.keys():
        if not forgets:  # And the other way round.
            verdict.flag("a state without a job", str(job))
    ends = Counter(job for job, state in final.places if state in _ENDS)
    for job, count in found.items():
        if ends[job] > 1:
            verdict.flag("settled twice", str(job))
        elif count > 1:
            verdict.flag("in two places", str(job))
    for job, state in final.places:
        if state not in _ENDS:
            verdict.flag("never ended", f"{job} is {state}")
    if final.totals:
        states = final.states
        counts = {name: sum(states[state] for state in counted) for name, counted in _COUNTED.items()}
        if not forgets:
            counts |= {"enqueued": len(final.labels), "completed": states["succeeded"]}
            counts |= {"discarded": states["discarded"], "expired": states["expired"]}
            # A child that was cancelled for a dead letter stays counted when it comes back.
            counts["cancelled"] = max(states["cancelled"], final.totals["cancelled"])
        for name, count in counts.items():
            if final.totals[name] != count:
                verdict.flag("not conserved", f"{name} is {final.totals[name]}, there are {count}")


def _check_runs(verdict: Verdict, history: Sequence[Event], final: Snapshot, gone: set[int]) -> None:
    holders: dict[tuple[int, int], str] = {}
    runs: Counter[int] = Counter()
    for event in history:
        if event.act != "run" or event.type != "invoke":
            continue
        runs[event.job] += 1
        if event.job not in final.labels and event.job not in gone:
            verdict.flag("a run of a job that is not stored", str(event.job))
        if holders.setdefault((event.job, event.lease), event.actor) != event.actor:
            verdict.flag("one lease, two holders", f"job {event.job}, lease {event.lease}")
    for job, state in final.places:
        if state == "succeeded" and not runs[job]:
            verdict.flag("succeeded without a run", str(job))
    verdict.sometimes["a job run again"] = sum(1 for count in runs.values() if count > 1)


def _check_settles(verdict: Verdict, history: Sequence[Event], final: Snapshot, gone: set[int]) -> None:
    """A settle names its job and who made it; the lease is that of this actor's last run of the job before it."""
    runs: dict[int, list[Event]] = defaultdict(list)
    returned: dict[tuple[str, int], Event] = {}
    settled: Counter[int] = Counter()
    for event in history:
        if event.act == "run" and event.type == "invoke":
            runs[event.job].append(event)
        elif event.act == "run" and event.type == "ok":
            returned[event.actor, event.job] = event
        elif event.act == "settle" and event.type == "fail":
            verdict.sometimes["a stale settle refused"] += 1
        elif event.act == "settle" and event.type == "ok":
            settled[event.job] += 1
            mine = returned.get((event.actor, event.job))
            # The handler returned, so the settle began, only after somebody else had been given a newer lease.
            newer = [run for run in runs[event.job] if mine is not None and run.lease > mine.lease and run.at < mine.at]
            if mine is not None and newer:
                verdict.flag("a stale settle accepted", f"job {event.job}: lease {mine.lease} after {newer[0].lease}")
    states = dict(reversed(final.places))
    for job, count in settled.items():
        if count > 1:
            verdict.flag("two workers were told that they settled it", str(job))
        if states.get(job) != "succeeded" and not (job in gone or (gone and job not in states)):
            verdict.flag("a settle acknowledged and lost", str(job))
    verdict.sometimes["a settle"] = settled.total()


def _check_order(verdict: Verdict, history: Sequence[Event], group: str) -> None:
    """First runs follow enqueue order: earlier in the same call, or acknowledged before the other was called."""
    begun: dict[str, tuple[int, int, int]] = {}
    acknowledged: dict[int, tuple[int, int, str, int]] = {}
    for place, event in enumerate(history):
        if event.act == "enqueue" and event.group == group:
            if event.type == "invoke":
                begun[event.label] = (event.at, event.call, place)
            elif event.type == "ok":
                at, call, within = begun[event.label]
                acknowledged[event.job] = (at, event.at, f"{event.actor}/{call}", within)
    latest_start, latest = -1, 0
    within_call: dict[str, int] = {}
    seen: set[int] = set()
    for event in history:
        if event.act != "run" or event.type != "invoke" or event.job in seen or event.job not in acknowledged:
            continue
        seen.add(event.job)
        called_at, acknowledged_at, made_by, within = acknowledged[event.job]
        if acknowledged_at < latest_start:
            verdict.flag("out of order", f"{event.job} after {latest}, which was enqueued later")
        if within_call.get(made_by, -1) > within:
            verdict.flag("out of order", f"{event.job} after a later one of its call")
        within_call[made_by] = max(within_call.get(made_by, -1), within)
        if called_at > latest_start:
            latest_start, latest = called_at, event.job
    verdict.sometimes["an order to keep"] += len(seen)


def _count_batches(history: Sequence[Event]) -> int:
    jobs = Counter((event.actor, event.call) for event in history if event.act == "run" and event.type == "invoke")
    return sum(count > 1 for (_, batch), count in jobs.items() if batch)


def _check_last_starts(verdict: Verdict, history: Sequence[Event]) -> None:
    """Where jobs are taken in runs, those that a crash makes run again do so in order: so the last starts have one."""
    for finding in order_findings(history, which="last"):
        verdict.flag("run again out of order", finding)


def _check_keys(verdict: Verdict, history: Sequence[Event], per_key: int, *, is_together: bool) -> None:
    """The jobs of a key start in enqueue order, so many at a time, whoever owns them and however often they run. Where
    several are taken together, in batches or runs, their first starts do, and none starts after a later one is settled.
    """
    if per_key == 1:
        for finding in order_findings(history, which="first" if is_together else "every"):
            verdict.flag("out of order", finding)
    if is_together:
        for finding in batch_findings(history):
            verdict.flag("out of order", finding)
    for finding in overlap_findings(history, per_key):
        verdict.flag("too many of a key at once", finding)
    keys = {event.job: event.group for event in history if event.act == "enqueue" and event.type == "ok"}
    actors: dict[str, set[str]] = defaultdict(set)
    for attempt in attempts_of(history):
        actors[keys.get(attempt.job, "")].add(attempt.actor)
    verdict.sometimes["a key run by several workers"] += sum(len(each) > 1 for key, each in actors.items() if key)
