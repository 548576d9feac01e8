"""All pages, each subject in a file.

overview     what needs attention, and every queue in a line
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.overview import overview

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
]
