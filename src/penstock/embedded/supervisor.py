"""The process that is the server's parent, and outlives whoever started it.

Every client holds clients.lock shared. The supervisor asks for it alone: it gets it when the last client is gone,
however that one died, and then stops the server. Until then a server that ends is started again, on the same port,
however long it takes to get ready.
Should the supervisor itself be killed, the kernel tells the server to stop (on Linux), and the next start sets up both.

This file is run by its path and imports nothing of Penstock: a supervisor is up in milliseconds and stays small.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 5.0
PAUSE_SECONDS = 0.1
# Between two tries to start a server that has served before.
LONGEST_PAUSE_SECONDS = 2.0
MARK = "postmaster.pid"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# Below the ports that systems hand out to outgoing connections, so that a stopped server finds its own still free.
PORTS = range(20_000, 32_000)
IS_LINUX = sys.platform == "linux"
C_LIBRARY = ctypes.CDLL(None)  # loaded before any fork: a child that became another user may not be able to


def main(home: Path, plan: dict[str, Any]) -> None:
    mine = os.open(home / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if os.fork():
        os._exit(0)  # whoever started this waits for it; the lock goes on with the child
    if IS_LINUX:
        C_LIBRARY.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    clients = os.open(home / "clients.lock", os.O_RDWR)
    watcher = _watch(clients, mine)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(watcher, signal.SIGKILL))
    _stop_predecessor(home / "data")
    try:
        _keep_running(home, plan, watcher)
    finally:
        # In this order: a client that waited for clients.lock must find no supervisor.
        os.close(mine)
        os.close(clients)


def _watch(clients: int, mine: int) -> int:
    """A child that ends when every client is gone, or by hand. The lock it gets is its parent's too, and stays."""
    parent = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        os.close(mine)
        _die_with(parent, signal.SIGKILL)
        fcntl.flock(clients, fcntl.LOCK_EX)
        os._exit(0)
    return watcher


def _keep_running(home: Path, plan: dict[str, Any], watcher: int) -> None:
    """Run the server, again and again if need be, until the watcher has ended.

    One that never got ready is given up soon: whoever started it waits, and is told why. One that did is started again
    for as long as it has clients: a disk that is full will have room again.
    """
    has_served = False
    failing_since: float | None = None
    pause = PAUSE_SECONDS
    while True:
        try:
            server = _launch(home, plan)
        except OSError as error:
            if not has_served:
                raise
            sys.stderr.write(f"the server cannot be started: {error}\n")
        else:
            if _wait_for(server.pid, watcher) == watcher:
                server.send_signal(signal.SIGINT)  # fast shutdown: whoever is still connected is cut off
                server.wait()
                return
            server.poll()
            _end_orphans(watcher)
            was_ready = _was_ready(home / "data", server.pid)
            has_served = has_served or was_ready
            failing_since = None if was_ready else failing_since or time.monotonic()
        if failing_since is None:
            pause = PAUSE_SECONDS
        elif has_served:
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        elif time.monotonic() - failing_since > PATIENCE_SECONDS:
            os.kill(watcher, signal.SIGKILL)
            sys.exit(f"the server did not get ready in {PATIENCE_SECONDS:.0f} s of trying")
        if _is_over(watcher, pause):
            return


def _is_over(watcher: int, seconds: float) -> bool:
    """Pause between two servers; whether the watcher has ended meanwhile, and with it the need for one."""
    deadline = time.monotonic() + seconds
    while True:
        ended, _ = os.waitpid(watcher, os.WNOHANG)
        if ended or time.monotonic() >= deadline:
            return bool(ended)
        time.sleep(PAUSE_SECONDS)


def _launch(home: Path, plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    data, parent = home / "data", os.getpid()
    options = {"port": _choose_port(home), "config_file": home / "postgresql.conf"}
    arguments = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.Popen(
        [plan["postgres"], "-D", data, *arguments],
        cwd=data,
        env={**environment, "LC_ALL": "C", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        user=plan["uid"],
        group=plan["gid"],
        extra_groups=None if plan["uid"] is None else [],
        preexec_fn=lambda: _die_with(parent, signal.SIGINT),
    )


def _choose_port(home: Path) -> int:
    """The port of last time, or else a free one, kept for next time."""
    kept = home / "port"
    last = [int(kept.read_text())] if kept.exists() else []
    for candidate in [*last, *random.sample(PORTS, 100), 0]:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL itself does
            try:
                trial.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            port = int(trial.getsockname()[1])
        if [port] != last:
            draft = home / "port.draft"
            draft.write_text(str(port))
            draft.replace(kept)
        return port
    sys.exit("no free port on 127.0.0.1")


def _wait_for(*wanted: int) -> int:
    while True:
        ended, _ = os.wait()
        if ended in wanted:
            return ended


def _was_ready(data: Path, process: int) -> bool:
    """Whether a server that has ended, ended while it was serving: then it could not remove its mark."""
    try:
        lines = (data / MARK).read_text().splitlines()
    except OSError:
        return False
    return lines[:1] == [str(process)] and lines[-1].strip() == "ready"


def _stop_predecessor(data: Path) -> None:
    """Wait for a server whose supervisor was killed; clear a mark that names a process which is no server."""
    try:
        process = int((data / MARK).read_text().splitlines()[0])
        while _is_server_of(process, data):
            os.kill(process, signal.SIGINT)
            time.sleep(PAUSE_SECONDS)
        os.kill(process, 0)
    except (OSError, ValueError, IndexError):
        return  # no mark, or the process is gone: PostgreSQL sees to it
    # After a restart of the machine the number may be another process's, which PostgreSQL would take for a server.
    (data / MARK).unlink(missing_ok=True)


def _is_server_of(process: int, data: Path) -> bool:
    if IS_LINUX:
        try:
            arguments = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(data) in arguments
    shown = subprocess.run(["/bin/ps", "-p", str(process), "-o", "args="], stdout=subprocess.PIPE, text=True)
    return str(data) in shown.stdout


def _end_orphans(watcher: int) -> None:
    """End what a killed server left behind: the next one cannot use the data while they do."""
    with contextlib.suppress(FileNotFoundError):  # not every system lists a process's children
        for child in Path("/proc/thread-self/children").read_text().split():
            if int(child) != watcher:
                os.kill(int(child), signal.SIGKILL)


def _die_with(parent: int, by: signal.Signals) -> None:
    if IS_LINUX:
        C_LIBRARY.prctl(PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
