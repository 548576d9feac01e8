"""G2, G3, G8: tables come and go in seconds beside the load, and every job still ends and is archived at most once."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.fault.stage import ROOT, Stage
from tests.fault.tally import brought, came_to

from penstock.storage import Database
from penstock.storage.upkeep.prune import LOCKED, prune
from penstock.storage.upkeep.tables_ahead import rotate_slice

NOTHING_KEPT = dict.fromkeys(("succeeded", "failed", "cancelled", "discarded", "expired"), 0.0)

# The numbers of jobs pass the table that is in use, as they do when it is full. Each names its shard.
PASS_TABLE = """
select setval('penstock.range_number', high + coalesce((select number from penstock.catalogue), 1))
  from penstock.job_table, penstock.range_number
 where last_value >= low and last_value < high and exists (select from penstock.job_table as p where p.low > last_value)
"""


def turn_over(database: Database) -> int:
    """Open new tables, and let go of those that ended: a month in a moment. How many went."""
    try:
        with database.connection() as connection:
            # Narrow ones: as make_ahead makes them, for such a rate, numbers would end after some thirty.
            connection.execute("select penstock.add_job_table(4096)")
            connection.execute(PASS_TABLE)
            rotate_slice(connection)
        pruned = prune(database, NOTHING_KEPT, budget_seconds=1.0)
    except LOCKED:
        return 0
    return len(pruned.slices) + len(pruned.job_tables)


@pytest.mark.long_run
def test_g2_g3_g8_tables_are_pruned_and_archived_at_full_speed_beside_the_load(
    mixed_stage: Stage, tmp_path: Path
) -> None:
    stage = mixed_stage
    stop, log = tmp_path / "stop", tmp_path / "archiver.log"
    crew = [stage.worker(), stage.worker()]
    went = 0
    with ExitStack() as stack:
        archiver = stack.enter_context(
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.fault.spark_archive_loop",
                    str(tmp_path / "lake"),
                    str(stop),
                    *stage.urls,
                ],
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("w")),
                text=True,
                cwd=ROOT,
            )
        )
        stack.callback(archiver.kill)
        assert archiver.stdout is not None
        databases = [Database(url) for url in stage.urls]
        for database in databases:
            stack.callback(database.close)
        stack.enter_context(stage.producing_anything())
        assert archiver.stdout.readline() == "archived 1\n", log.read_text()[-3000:]
        for number in range(15):
            went += sum(turn_over(database) for database in databases)
            if number % 5 == 4:
                victim = stage.random.randrange(2)
                crew[victim].kill()
                crew[victim] = stage.worker()
        stop.touch()
        rest = archiver.stdout.read()
        assert archiver.wait() == 0, log.read_text()[-3000:]
    assert went > 0
    words = rest.splitlines()[-1].split()
    assert words[0] == "history"
    assert words[1] == words[2], "a job is in the history twice"
    came_to({"a table let go beside the load": went})
    brought("prune and archive at full speed beside the load")
    stage.verdict(forgets=True).require("a settle")
