"""`swarm sol` for a GPU that is not here: its peaks are published, FLOPs are counted on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.problem import load_problem

ROOT = Path(__file__).parent.parent


def test_the_limits_on_a_gpu_need_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--root", str(ROOT), "sol", "swiglu", "--device-model", "NVIDIA H200", "--json"]
    assert cli.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["peaks"]["device_model"] == "nvidia-h200"
    problem = load_problem(ROOT / "problems" / "swiglu")
    assert [one["workload"] for one in found["limits"]] == [w.uuid for w in problem.workloads]
    assert not any(one["is_weak"] for one in found["limits"])
    for one, workload in zip(found["limits"], problem.workloads, strict=True):
        assert one["bytes"] == problem.sol_bytes(workload)
        assert one["t_sol_us"] >= one["bytes"] / 4.8e6
        assert one["floor_us"] <= one["t_sol_us"]


def test_an_unknown_gpu_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--root", str(ROOT), "sol", "swiglu", "--device-model", "h2000"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("swarm: ") and "no peaks are known for the GPU 'h2000'" in line
    assert "results/baselines/h2000/peaks.json" in line
