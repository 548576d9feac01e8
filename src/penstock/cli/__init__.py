"""The command line: every act of an app, for a terminal and for scripts.

program     the commands by name, and what becomes of an error: one line, and an exit code
app_target  from MODULE:APP or a URL to an app that answers
shared_options   arguments and options that several commands take
up, work, serve, enqueue, look, change, keys, crons, load, lake, analyse, schema, shards     the commands, by subject
top, watch  the whole system live; one job or load to its end
live        the screen that top shows
completion, completers     what a shell is told at Tab: how to ask, and what may stand next
examples    an example of each command, for its help
tokens, audit    who may come in, and who did what
causes      why jobs failed
spark       Spark for the commands that need it, and how far it is
probing     where a worker answers scrapes and health probes
task_arguments   key=value as the handler's annotations read it
times       times and waits as a person writes them
help_page   what the help says of options
terminal    what is printed, as tables, as plain lines or as JSON
process_exit     how a process ends though a handler of it does not

Exit codes: 0 done, 1 refused, 2 wrong use, 75 a worker is stuck, 124 watched for too long, 130 interrupted.
"""

from penstock.cli.program import main, run

__all__ = ["main", "run"]
