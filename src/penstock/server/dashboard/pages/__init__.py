"""All pages, each subject in a file.

overview     what needs attention, and every queue in a line
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.job import job
from penstock.server.dashboard.pages.job_arguments import job_arguments
from penstock.server.dashboard.pages.overview import overview

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
    *job,
    *job_arguments,
]
