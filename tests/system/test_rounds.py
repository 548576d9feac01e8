"""A process of the long fault run notices what fails: one that never did would call everything well."""

from __future__ import annotations

from pathlib import Path

from tests.fault.__main__ import Process

TESTS = {
    "test_one.py": """
import os
from tests.fault.tally import brought
def test_well(tmp_path, tmp_path_factory):
    brought("worker killed", 3)
    (tmp_path / "seed").write_text(os.environ["PENSTOCK_FAULT_SEED"])
def test_broken(tmp_path):
    brought("worker killed")
    (tmp_path / "history.jsonl").write_text("what happened")
    assert 1 == 2, "acknowledged and lost"
""",
    "test_two.py": """
import os, signal, pytest
@pytest.fixture
def unsound():
    yield
    raise OSError("cannot be put away")
def test_unsound(unsound): pass
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
""",
}


def test_rounds_are_run_in_any_order_again_and_again_and_failures_are_kept(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    folder = tmp_path / "run"
    folder.mkdir()
    process = Process(folder, ["--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)])
    names = {test.rpartition("::")[2]: test for test in process.tests()}
    for seed, name in enumerate(["test_well", "test_unsound", "test_broken", "test_well", "test_broken"], 1):
        done = process.run(names[name], seed)
        assert (done.test, done.seed) == (names[name], seed)
        if name == "test_well":
            assert (done.found, done.faults) == ("", {"worker killed": 3})
        elif name == "test_broken":
            assert "acknowledged and lost" in done.found
            assert done.faults == {"worker killed": 1}
            assert (folder / str(seed) / "history.jsonl").read_text() == "what happened"
            assert "assert 1 == 2" in (folder / str(seed) / "failure.txt").read_text()
        else:
            assert "cannot be put away" in done.found
            assert done.faults == {}
    assert "has died" in process.run(names["test_dies"], 6).found
    process.close()
