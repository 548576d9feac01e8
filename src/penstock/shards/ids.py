"""Keeping the ids of several shards level, so that of two jobs on different shards the newer has the higher id.

Each shard draws its own range numbers, and one that takes fewer calls draws fewer. From time to time those that are
behind draw up to the others: jobs are listed by id, newest first. That holds to within a round of upkeep. Numbers are
only ever drawn: to set a sequence forward could set it back.
"""

from __future__ import annotations

from penstock.shards.databases import Databases
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query

__all__ = ["level_ids", "read_range_number"]

# So many numbers are drawn at once at most: some milliseconds.
MOST = 20_000
ANSWER_SECONDS = 3.0


def level_ids(databases: Databases) -> int:
    """Let the shards that are behind draw up to the others, or nearer to them; how many numbers were drawn."""
    newest = max(databases.each(read_range_number, timeout=ANSWER_SECONDS), default=0)

    def draw(connection: Connection) -> int:
        row = connection.execute(query("draw_up_to"), {"range": newest, "most": MOST}).fetchone()
        return int(row[0]) if row else 0

    return sum(databases.each(draw, timeout=ANSWER_SECONDS))


def read_range_number(connection: Connection) -> int:
    """The last range number that was drawn."""
    row = connection.execute(query("read_range_number")).fetchone()
    return int(row[0]) if row else 0
