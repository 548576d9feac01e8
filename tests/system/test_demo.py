"""The demo runs to its end and finds that everything adds up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_accounts_for_every_event_and_leaves_only_its_page(tmp_path: Path) -> None:
    # Not pytest's own folders: those are closed to the account that runs the server for root.
    environment = os.environ | {"PENSTOCK_DEMO_EVENTS": "20000", "COLUMNS": "80"}
    run = subprocess.run([sys.executable, DEMO], cwd=tmp_path, env=environment, capture_output=True, check=False)
    shown = run.stdout.decode()
    assert run.returncode == 0, shown + run.stderr.decode()
    assert "19,990 jobs by Spark, visible all at once; 10 bad rows put aside" in shown
    assert re.search(r"19,990 jobs ended, 19,988 succeeded", shown)
    assert re.search(r"^ *2  failed", shown, re.M)
    assert shown.count("✓") == 7
    assert "kill -9" in shown
    folder = re.search(r"running in (\S+)", shown)
    assert folder is not None
    assert not Path(folder[1]).exists()
    [page] = tmp_path.iterdir()
    assert page.as_uri() in shown
    assert "19,990 jobs ended" in page.read_text(encoding="utf-8")
