"""All pages, each subject in a file.

overview     what needs attention, and every queue in a line
"""

from penstock.server.dashboard.entry import Entry
from penstock.server.dashboard.pages.enqueue import enqueue
from penstock.server.dashboard.pages.new_queue import new_queue
from penstock.server.dashboard.pages.overview import overview
from penstock.server.dashboard.pages.queue import queue
from penstock.server.dashboard.pages.queue_keys import queue_keys
from penstock.server.dashboard.pages.queue_partitions import queue_partitions
from penstock.server.dashboard.pages.queue_removal import queue_removal
from penstock.server.dashboard.pages.queue_rules import queue_rules

__all__ = ["PAGES"]

PAGES: list[Entry] = [
    *overview,
    *queue,
    *queue_partitions,
    *queue_keys,
    *queue_rules,
    *queue_removal,
    *enqueue,
    *new_queue,
]
