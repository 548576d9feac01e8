"""`python -m bench compare`: two commits of a small repository, each with a bench of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from bench.compare import Ratio

from bench import compare

# A bench that finds what the file says, and 1 % more at each run: a machine that gets warm.
BENCH = """
import json, sys
from pathlib import Path
name, folder = sys.argv[1], Path(sys.argv[sys.argv.index("--output") + 1])
runs = Path({runs!r})
with runs.open("a") as file:
    file.write({side!r})
drift = 1.01 ** len(runs.read_text())
if name == "broken":
    sys.exit("no such table")
figures = [
    {{"name": "cycles", "unit": "jobs/s", "values": [{rate} * drift]}},
    {{"name": "wait", "unit": "ms", "values": [{wait} / drift]}},
    {{"name": "exceeded", "unit": "jobs", "values": [0]}},
]
folder.joinpath(name + ".json").write_text(json.dumps({{"figures": figures}}))
"""


class Repository:
    """One whose bench finds other figures at each commit."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.runs = folder / "runs"
        (self.root / "bench").mkdir(parents=True)
        (self.root / "src").mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        settings = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", *settings, *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, side: str, *, rate: float, wait: float) -> None:
        text = BENCH.format(runs=str(self.runs), side=side, rate=rate, wait=wait)
        (self.root / "bench" / "__main__.py").write_text(text)
        self.git("add", "--all")

    def commit(self, side: str, *, rate: float, wait: float) -> str:
        self.write(side, rate=rate, wait=wait)
        self.git("commit", "--quiet", "--message", side)
        return self.git("rev-parse", "HEAD")

    def compare(self, *arguments: str) -> int:
        return compare.main([*arguments, "--output", str(self.root.parent)], self.root)

    @property
    def found(self) -> dict[str, dict[str, object]]:
        report = json.loads((self.root.parent / "compare.json").read_text())
        return {figure["figure"]: figure for figure in report["figures"]}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_figure_whose_whole_interval_is_below_is_worse(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    before = repository.commit("A", rate=1000.0, wait=20.0)
    repository.commit("B", rate=800.0, wait=10.0)
    assert repository.compare(before, "cycle") == 1
    assert repository.runs.read_text() == "ABBAABBAABBAAB"
    found = repository.found
    assert found["cycles"]["is_worse"]
    assert found["cycles"]["ratio"] == pytest.approx(0.8, rel=0.02)
    assert not found["wait"]["is_worse"]
    assert found["wait"]["ratio"] == pytest.approx(2.0, rel=0.02)
    # What is neither faster nor smaller is not compared.
    assert "exceeded" not in found
    assert "worse: cycle: cycles" in capsys.readouterr().out
    assert repository.git("worktree", "list").count("\n") == 0


def test_changes_that_are_not_committed_are_measured(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("A", rate=1000.0, wait=20.0)
    repository.write("B", rate=1000.0, wait=40.0)
    assert repository.compare("HEAD", "cycle") == 1
    assert repository.found["wait"]["is_worse"]
    assert "not committed" in capsys.readouterr().out
    assert repository.git("stash", "list") == ""


def test_too_few_pairs_and_small_sizes_judge_nothing(repository: Repository) -> None:
    before = repository.commit("A", rate=1000.0, wait=20.0)
    repository.commit("B", rate=500.0, wait=20.0)
    assert repository.compare(before, "cycle", "--pairs", "6") == 0
    assert repository.compare(before, "cycle", "--quick") == 0
    assert repository.compare(before, "cycle", "--pairs", "8") == 1


def test_what_fails_is_named(repository: Repository) -> None:
    before = repository.commit("A", rate=1.0, wait=1.0)
    with pytest.raises(SystemExit, match=r"bench broken failed in .*\n.*no such table"):
        repository.compare(before, "broken")
    assert repository.git("worktree", "list").count("\n") == 0
    with pytest.raises(SystemExit, match="rev-parse"):
        repository.compare("nosuch", "cycle")


@pytest.mark.parametrize(
    ("pairs", "interval"),
    [
        ([1.0], (1.0, 1.0)),
        ([0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5], (0.9, 1.5)),
        ([0.1, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 9.0], (1.0, 1.6)),
    ],
)
def test_the_interval_holds_the_median_in_95_of_100_cases(pairs: list[float], interval: tuple[float, float]) -> None:
    assert Ratio(pairs).interval == interval
