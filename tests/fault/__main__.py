"""The long run: `make fault`, or `python -m tests.fault`.

Every test of this folder is a round, and so is every other that is too long for `make test`. Several processes run
rounds, each with a seed of its own, until every fault has been brought about as often as `tally.FAULTS` asks. A run
that was stopped goes on where it was when it is called again on the same commit; `--fresh` begins anew. `--replay SEED`
runs one round again, alone. A round that fails keeps its history and what its workers said in `.fault/COMMIT/SEED/`;
the run goes on and ends red. At its end the run writes what it did into the manual.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
from tests.fault.ledger import ROOT, Ledger, Round, commit_of_here
from tests.fault.report import sometimes_missing, table, timings, write_into_manual
from tests.fault.rounds import WATCHED_SECONDS, Collected, Told
from tests.fault.schedule import Schedule
from tests.jvm import shorten_starts


class Process:
    """One process that runs rounds; begun again when it has died."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        ours, theirs = socket.socketpair()
        with (folder / "processes.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.rounds", str(theirs.fileno()), str(folder), *arguments],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env={**os.environ, "PENSTOCK_FAULT": "full"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        theirs.close()
        self._socket = ours
        ours.settimeout(WATCHED_SECONDS)
        self._lines = ours.makefile("rb")

    def tests(self) -> list[str]:
        line = self._lines.readline()
        return msgspec.json.decode(line, type=Collected).tests if line else []

    def run(self, test: str, seed: int) -> Round:
        """A round, to its end or the process's."""
        began = time.monotonic()
        try:
            self._socket.sendall(msgspec.json.encode(Told(test, seed)) + b"\n")
            line = self._lines.readline()
        except TimeoutError:
            return Round(test, seed, WATCHED_SECONDS, found=f"not over after {WATCHED_SECONDS} s: see stacks-*.txt")
        except OSError:
            line = b""
        if line:
            return msgspec.json.decode(line, type=Round)
        return Round(test, seed, time.monotonic() - began, found="the process that ran it has died: see processes.log")

    def close(self) -> None:
        """End it gently: its server and its workers go with it."""
        self._lines.close()
        self._socket.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with everybody of its session, which this run began."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Run:
    """Gives rounds to several processes until there is nothing left, or it is told to stop."""

    def __init__(self, ledger: Ledger, processes: int, minutes: float, arguments: list[str]) -> None:
        self.ledger = ledger
        self._arguments = arguments
        self._processes = processes
        self._deadline = time.monotonic() + minutes * 60
        self._lock = threading.Condition()
        self.is_stopped = False
        first = self._start()
        tests = first.tests()
        if not tests:
            raise SystemExit(f"pytest found no test: see {ledger.folder}/processes.log")
        self.schedule = Schedule(ledger, tests)
        others = [threading.Thread(target=self._drive, args=(None,)) for _ in range(processes - 1)]
        self._threads = [threading.Thread(target=self._drive, args=(first,)), *others]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(0.5)

    def stop(self) -> None:
        """Begin nothing new: what is under way is waited for."""
        with self._lock:
            self.is_stopped = True
            self._lock.notify_all()

    def _start(self) -> Process:
        return Process(self.ledger.folder, self._arguments)

    def _drive(self, process: Process | None) -> None:
        while (next_ := self._next()) is not None:
            if process is None:
                process = self._start()
                process.tests()
            done = process.run(*next_)
            with self._lock:
                self.schedule.end(done)
                self._lock.notify_all()
                self._tell(done)
            if "process that ran it" in done.found or "not over after" in done.found:
                process.kill()
                process = None
        if process is not None:
            process.close()

    def _next(self) -> tuple[str, int] | None:
        with self._lock:
            while not self.is_stopped and time.monotonic() < self._deadline:
                next_ = self.schedule.next()
                if next_ is not None or self.schedule.is_over():
                    return next_
                # What is under way may yet fall short of what is expected of it.
                self._lock.wait(1.0)
        self.is_stopped = True
        return None

    def _tell(self, done: Round) -> None:
        brought = ", ".join(f"{fault} {count}" for fault, count in done.faults.items())
        minutes, seconds = divmod(int(self.ledger.seconds), 60)
        name = done.test.rpartition("/")[2]
        print(f"{minutes:3}:{seconds:02} {done.seconds:6.1f} s  {name}  seed {done.seed}: {brought or 'nothing'}")
        if done.found:
            print(f"       FAILED: {done.found}")
            # A round that was given up, or whose process died, kept nothing.
            if (kept := self.ledger.folder / str(done.seed)).exists():
                print(f"       kept in {kept}")
        sys.stdout.flush()


def replay(folder: Path, seed: int, test: str | None) -> int:
    """Run one round again, with pytest's own words."""
    if test is None:
        ledgers = sorted(folder.glob("*/rounds.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
        lines = (line for path in ledgers for line in path.read_bytes().splitlines() if b'"type":"round"' in line)
        rounds = (msgspec.json.decode(line, type=Round) for line in lines)
        test = next((each.test for each in rounds if each.seed == seed), None)
        if test is None:
            raise SystemExit(f"no round of seed {seed} in {folder}: name its test too, --test FILE::NAME")
    environment = {**os.environ, "PENSTOCK_FAULT": "full", "PENSTOCK_FAULT_SEED": str(seed)}
    return subprocess.run([sys.executable, "-m", "pytest", test], cwd=ROOT, env=environment, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(prog="make fault", description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=4, help="how many run rounds at a time")
    parser.add_argument("--minutes", type=float, default=90, help="begin no round after so many")
    parser.add_argument("--seed", type=int, help="of the run: every round's follows from it")
    parser.add_argument("--fresh", action="store_true", help="forget what was done on this commit")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run the round of this seed again")
    parser.add_argument("--test", help="with --replay: the round's test")
    parser.add_argument("--only", metavar="EXPRESSION", help="rounds of these tests alone, as pytest's -k takes them")
    given = parser.parse_args()
    shorten_starts()
    home = ROOT / ".fault"
    if given.replay is not None:
        sys.exit(replay(home, given.replay, given.test))
    commit = commit_of_here()
    folder = home / (commit if given.only is None else f"{commit}-only")
    if given.fresh and folder.exists():
        shutil.rmtree(folder)
    ledger = Ledger(folder, given.seed, given.processes)
    said = "goes on" if ledger.is_resumed else "begins"
    print(f"a run on {commit} with seed {ledger.seed} {said}: {len(ledger.rounds)} rounds are done", flush=True)
    arguments = ["-m", "fault or long_run", *(["-k", given.only] if given.only else [])]
    run = Run(ledger, given.processes, given.minutes, arguments)
    signal.signal(signal.SIGTERM, lambda *_: run.stop())
    signal.signal(signal.SIGINT, lambda *_: run.stop())
    run.run()
    sys.exit(conclude(run, commit, given.processes, is_whole=given.only is None))


def conclude(run: Run, commit: str, processes: int, *, is_whole: bool) -> int:
    """Say what was done: 0 where it is all done and nothing found, 1 where not, 3 where it was stopped."""
    ledger = run.ledger
    text = table(ledger, commit, processes)
    print(f"{timings(ledger)}\n\n{text}")
    if run.is_stopped and ledger.missing():
        print("\nstopped: the same command goes on from here")
        return 3
    if is_whole:
        write_into_manual(text)
    is_red = any(each.found for each in ledger.rounds)
    return 1 if is_red or (is_whole and (ledger.missing() or sometimes_missing(ledger))) else 0


if __name__ == "__main__":
    main()
