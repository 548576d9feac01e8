"""All pages, each subject in a file.

overview       what needs attention, and every queue in a line
jobs           jobs by any filters, page by page
chosen_jobs    those filters, and what may be done to all that match
jobs_change    that is done, after a count
job            one job
job_arguments  a dead letter is retried with other arguments
dead_letters   dead letters by cause
search         what was typed into the box
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.audit import audit
from penstock.server.dashboard.pages.dead_letters import dead_letters
from penstock.server.dashboard.pages.history import history
from penstock.server.dashboard.pages.job import job
from penstock.server.dashboard.pages.job_arguments import job_arguments
from penstock.server.dashboard.pages.jobs import jobs
from penstock.server.dashboard.pages.jobs_change import jobs_change
from penstock.server.dashboard.pages.loads import loads
from penstock.server.dashboard.pages.overview import overview
from penstock.server.dashboard.pages.schedules import schedules
from penstock.server.dashboard.pages.search import search
from penstock.server.dashboard.pages.shards import shards
from penstock.server.dashboard.pages.tokens import tokens
from penstock.server.dashboard.pages.workers import workers

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
    *jobs,
    *jobs_change,
    *job,
    *job_arguments,
    *dead_letters,
    *search,
    *schedules,
    *workers,
    *loads,
    *shards,
    *tokens,
    *audit,
    *history,
]
