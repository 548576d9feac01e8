"""All pages, each subject in a file.

overview     what needs attention, and every queue in a line
schedules    what is enqueued by the calendar, and what is due when
workers      who is alive, and what each runs
loads        bulk writes, and how far they are
shards       the databases, and draining one
tokens       who may come in over HTTP
audit        who did what
history      the report that Spark made
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.audit import audit
from penstock.server.dashboard.pages.history import history
from penstock.server.dashboard.pages.loads import loads
from penstock.server.dashboard.pages.overview import overview
from penstock.server.dashboard.pages.schedules import schedules
from penstock.server.dashboard.pages.shards import shards
from penstock.server.dashboard.pages.tokens import tokens
from penstock.server.dashboard.pages.workers import workers

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
    *schedules,
    *workers,
    *loads,
    *shards,
    *tokens,
    *audit,
    *history,
]
