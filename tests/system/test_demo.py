"""The demo runs to its end and finds that everything adds up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_accounts_for_every_job_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # Not pytest's own folders: those are closed to the account that runs the server for root.
    environment = os.environ | {"PENSTOCK_DEMO_JOBS": "20000", "COLUMNS": "80"}
    run = subprocess.run([sys.executable, DEMO], cwd=tmp_path, env=environment, capture_output=True, check=False)
    shown = run.stdout.decode()
    assert run.returncode == 0, shown + run.stderr.decode()
    figures = {name: int(count.replace(",", "")) for count, name in re.findall(r"^ *([\d,]+)  (\w+)", shown, re.M)}
    assert (figures["enqueued"], figures["succeeded"], figures["dead"], figures["lost"]) == (20_000, 19_998, 2, 0)
    assert "kill -9" in shown
    folder = re.search(r"running in (\S+)", shown)
    assert folder is not None
    assert not Path(folder[1]).exists()
    assert list(tmp_path.iterdir()) == []
