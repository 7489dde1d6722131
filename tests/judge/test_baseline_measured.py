"""T_b of one small problem, with the real torch.compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.baseline import NOT_IN_TIME, Baseline, Contender
from swarm.contents import files_hash
from swarm.device import cpu_device
from swarm.judge import baseline
from swarm.judge.baseline_main import REASON_CHARS, missing
from swarm.judge.desk import versions
from swarm.problem import problem_from_files
from tests.judge.test_judge import COORDINATION, files

LIBRARY = b"import torch\ndef run(x, w, scale):\n    return torch.mul(x, w).mul_(scale)\n"
BROKEN = b"def run(x, w, scale):\n    return x\n"


@pytest.fixture(autouse=True)
def _own_device_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))


def test_every_contender_is_timed_and_a_wrong_one_is_left_out_with_its_reason(tmp_path: Path) -> None:
    good = problem_from_files(files() | {"baseline.py": LIBRARY}, "good")
    wrong = problem_from_files(files() | {"baseline.py": BROKEN}, "wrong")
    both = baseline.measure([good, wrong], COORDINATION.read_bytes(), cpu_device(), tmp_path, 250.0)
    found = {item.problem: item for item in both}
    for problem in (good, wrong):
        item = found[problem.name]
        times = {contender.name: contender for contender in item.contenders}
        assert list(times) == ["eager", "baseline.py", "compile"]
        assert set(times["eager"].times_us) == {"rows-7", "rows-200"}
        assert set(times["compile"].times_us) == {"rows-7", "rows-200"}, times["compile"].missing
        assert item.files == files_hash(problem.files)
        assert item.times_us["rows-7"] == min(
            contender.times_us["rows-7"] for contender in item.contenders if contender.times_us
        )
    library = found["wrong"].contenders[1]
    assert library.times_us == {}
    assert "INCORRECT_NUMERICAL" in library.missing


def test_a_reason_that_is_cut_says_so() -> None:
    assert missing("eager", "it is wrong").missing == "it is wrong"
    cut = missing("eager", "it is wrong; " * 100).missing
    assert len(cut) <= REASON_CHARS and cut.endswith("…")


def test_what_is_not_compiled_in_time_is_left_out_and_said(tmp_path: Path) -> None:
    good = problem_from_files(files(), "good")
    [item] = baseline.measure([good], COORDINATION.read_bytes(), cpu_device(), tmp_path, 0.5)
    by_name = {contender.name: contender for contender in item.contenders}
    assert by_name["compile"].times_us == {}
    assert by_name["compile"].missing == NOT_IN_TIME
    assert item.remarks == [f"good: T_b without compile: {by_name['compile'].missing}"]


def test_the_next_sitting_keeps_what_was_measured_by_the_same_versions(tmp_path: Path) -> None:
    good = problem_from_files(files() | {"baseline.py": LIBRARY}, "good")
    contenders = (
        Contender("eager", {"rows-7": 0.5, "rows-200": 1.5}, versions()),
        Contender("baseline.py", {"rows-7": 0.25}, versions(), NOT_IN_TIME),
        Contender("compile", {"rows-7": 0.125}, versions() | {"torch": "1.0"}, NOT_IN_TIME),
    )
    begun = {"good": Baseline("good", "", "", 0, 1.0, contenders)}
    [item] = baseline.measure([good], COORDINATION.read_bytes(), cpu_device(), tmp_path, 0.5, begun)
    eager, library, compiled = item.contenders
    assert eager == contenders[0]
    assert library.times_us.keys() == {"rows-7", "rows-200"} and library.missing == ""
    assert library.times_us["rows-7"] == 0.25 and library.times_us["rows-200"] > 0
    assert (compiled.times_us, compiled.missing) == ({}, NOT_IN_TIME)
    assert item.times_us == {}


def test_a_baseline_that_cannot_be_loaded_leaves_the_others_alone(tmp_path: Path) -> None:
    broken = problem_from_files(files() | {"baseline.py": b"raise ValueError('no')\n"}, "broken")
    [item] = baseline.measure([broken], COORDINATION.read_bytes(), cpu_device(), tmp_path, 0.5)
    eager, library, _ = item.contenders
    assert set(eager.times_us) == {"rows-7", "rows-200"}
    assert (library.name, library.times_us, library.missing) == (
        "baseline.py",
        {},
        "broken/baseline.py line 1: ValueError: no",
    )
