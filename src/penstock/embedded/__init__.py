"""A real PostgreSQL that needs no installing: its own folder, its own port, its own password.

`start(folder)` gives a running server. Any number of threads and processes may start the same folder; they share one
server, which stops when the last of them is gone, however it went.

    nearest     which folder is meant
    binaries    where a PostgreSQL is found on this machine
    account     whom the server runs as (never root)
    home        where its files lie
    cluster     its data folder, made once, and its settings
    server      what a client holds: start, url, close
    supervisor  the process that is the server's parent
"""

from penstock.embedded.nearest import NAME, find_nearest
from penstock.embedded.server import Server, is_running, start

__all__ = ["NAME", "Server", "find_nearest", "is_running", "start"]
