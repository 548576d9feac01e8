"""The examples in bash run against a real server, and print what the page says.

The blocks of a page are one script; what they print stands beside them after `# → `, as for Python.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, ROOT, blocks
from tests.server.programs import running

SERVED_AT = "http://127.0.0.1:8080/api/v1"
ARROW = "  # → "
CURL_PAGES = [page for page in PAGES if any(block.language == "bash" for block in blocks(page))]


@pytest.mark.parametrize("page", CURL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_against_a_server(page: Path, database_url: str, tmp_path: Path) -> None:
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.lines]
    said = [line.split(ARROW)[1] for line in lines if ARROW in line]
    assert said
    with running(tmp_path, database_url, "serve", "--port", "0") as (_, url):
        script = "\n".join(line.split(ARROW)[0] for line in lines).replace(SERVED_AT, url)
        assert url in script
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr
