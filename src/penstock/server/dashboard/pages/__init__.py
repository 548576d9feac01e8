"""All pages, each subject in a file.

overview     what needs attention, and every queue in a line
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
