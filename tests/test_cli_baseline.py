"""`swarm baseline --optimise`: a run's champion in PyTorch is one more contender for T_b."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.baseline import Baseline, Contender, load_baseline, save_baseline
from swarm.cli import main as cli
from swarm.contents import files_hash
from swarm.device import cpu_device
from swarm.hub import Hub
from swarm.judge.desk import versions
from swarm.layout import RunRoot
from swarm.problem import load_problem
from swarm.verdict import JUDGE_VERSION
from tests.problem_files import write_double
from tests.support import make_root

PYTORCH = {
    "solution.toml": b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n',
    "kernel.py": b"import torch\ndef run(x, y):\n    torch.add(x, x, out=y)\n",
}
MODEL = cpu_device().model
SLOW = (
    Contender("eager", {"w1": 2e9}, versions()),
    Contender("compile", {"w1": 1e9}, versions()),
)


def begin(root: RunRoot, name: str, solution: dict[str, bytes]) -> str:
    """Write a problem, let the run `torch` have it with a champion, put a slow baseline on file."""
    write_double(root.problem(name))
    problem = load_problem(root.problem(name))
    files = {**problem.files, root.coordination.name: root.coordination.read_bytes()}
    with Hub(root.run("torch")) as hub:
        hub.ensure()
        commit = hub.ensure_epoch(name, files, solution, "planner").commit
    save_baseline(root, Baseline(name, MODEL, files_hash(problem.files), JUDGE_VERSION, 1.0, SLOW))
    return commit


def test_a_pytorch_champion_is_timed_beside_what_is_on_file_and_becomes_t_b(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    root = make_root(tmp_path / "root")
    monkeypatch.chdir(root.path)
    commit = begin(root, "good", PYTORCH)
    begin(root, "wrong", PYTORCH | {"kernel.py": b"def run(x, y):\n    y.copy_(x)\n"})
    cpp = load_problem(root.problem("good")).seeds["cpp"]
    begin(root, "native", cpp)
    words = [
        "baseline",
        "good",
        "wrong",
        "native",
        "--optimise",
        "--run",
        "torch",
        "--device",
        "cpu",
        "--json",
    ]
    assert cli.main(words) == 0
    told = capsys.readouterr()
    found = {one["problem"]: one for one in json.loads(told.out)}
    eager, compiled, champion = found["good"]["contenders"]
    assert (eager["times_us"], compiled["times_us"]) == ({"w1": 2e9}, {"w1": 1e9}), "kept, not measured again"
    assert champion["name"] == f"pytorch {commit[:10]}" and champion["missing"] == ""
    assert 0 < champion["times_us"]["w1"] < 1e6
    assert found["good"]["t_b_us"] == champion["times_us"]
    assert "INCORRECT_NUMERICAL" in found["wrong"]["contenders"][2]["missing"]
    assert found["wrong"]["t_b_us"] == {"w1": 1e9}
    assert len(found["native"]["contenders"]) == 2
    assert "native: the champion of run torch is in cpp" in told.err

    before = load_baseline(root, MODEL, "good")
    assert cli.main(words) == 0
    assert load_baseline(root, MODEL, "good") == before, "what is on file is not measured again"
