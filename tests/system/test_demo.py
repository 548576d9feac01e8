"""The demo runs to its end and finds that everything adds up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

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


# The demo itself was run above: what comes after it needs no Spark.
LAST = "import demo, penstock, sys; app = penstock.App(sys.argv[1]); app.migrate(); demo.show_dashboard(app)"


def test_whoever_sits_at_the_terminal_gets_the_dashboard_until_they_press_enter(database_url: str) -> None:
    ours, its = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", LAST, database_url], cwd=DEMO.parent, stdin=its, stdout=its, stderr=its
    ) as run:
        os.close(its)
        shown, asked = b"", ""
        with suppress(OSError):  # The terminal ends with the program.
            while chunk := os.read(ours, 65_536):
                shown += chunk
                if not asked and (found := re.search(rb"dashboard is at (http://[0-9.:]+/)", shown)):
                    with urlopen(found[1].decode()) as page:
                        asked = page.read().decode()
                    os.write(ours, b"\n")
    os.close(ours)
    assert run.returncode == 0, shown.decode()
    assert "Overview" in asked
