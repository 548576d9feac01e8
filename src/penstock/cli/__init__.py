"""The command line: every act of an app, for a terminal and for scripts.

program     the commands by name, and what becomes of an error: one line, and an exit code
target      from MODULE:APP or a URL to an app that answers
parameter   arguments and options that several commands take
up, work, enqueue, look, change, keys, load, lake, analyse, schema, shards     the commands, by subject
spark       Spark for the commands that need it, and how far it is
argument    key=value as the handler's annotations read it; moment: times and waits as a person writes them
terminal    what is printed, as tables, as plain lines or as JSON
leaving     how a process ends though a handler of it does not

Exit codes: 0 done, 1 refused, 2 wrong use, 75 a worker is stuck, 130 interrupted.
"""

from penstock.cli.program import main, run

__all__ = ["main", "run"]
