"""A run whose GPU is on another host: everything but measuring happens here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.verdict import verdict_key
from tests.problem_files import write_double
from tests.records import ENVIRONMENT, verdict
from tests.support import REPOSITORY

KERNEL = """#include "problem.h"
extern "C" __global__ void twice(const float* x, float* y, long long n) {
  long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
MANIFEST = """language = "cuda"
sources = ["kernel.cu"]
[params]
BLOCK = 256
[tune]
BLOCK = [128, 256, 512]
[[launch]]
kernel = "twice"
grid = ["ceildiv(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n:i64"]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRoot:
    """A run root with one problem that has seeds for CPU and GPU, as the current folder."""
    assert cli.main(["init", str(tmp_path / "root")]) == 0
    root = RunRoot(tmp_path / "root")
    root.config.write_text('[run]\nname = "t"\nworkers = 1\n')
    write_double(root.problem("double"))
    seed = root.problem("double") / "seed" / "cuda"
    seed.mkdir()
    (seed / "kernel.cu").write_text(KERNEL)
    (seed / "solution.toml").write_text(MANIFEST)
    monkeypatch.chdir(root.path)
    return root


def swarm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli.main", *words],
        capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@pytest.mark.timeout(180)
def test_a_run_without_its_gpu_goes_on_as_far_as_it_can(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    done = swarm("run", "--device-model", "NVIDIA H200", "--minutes", "0.2")
    assert done.returncode == 0, done.stderr
    assert (
        "cuda, measured elsewhere on nvidia-h200: `swarm pending --bundle FILE` takes it there" in done.stderr
    )
    paths = root.run("t")
    with Hub(paths) as hub:
        commits = hub.commits("double")
        assert {s.branch.worker for s in commits if s.branch} == {"w1"}, "the tuner handed in what it may"
        assert len(commits) == 3
        assert "kernel.cu" in hub.solution_files(commits[0].commit)
    capsys.readouterr()
    assert cli.main(["status", "--json"]) == 0
    now = json.loads(capsys.readouterr().out)
    assert (now["device_model"], now["devices"]) == ("nvidia-h200", [])
    assert {role["role"] for role in now["roles"]} == {"planner", "worker-w1"}
    alone = swarm("watch")
    assert alone.returncode == 1
    assert "this run is measured elsewhere, on nvidia-h200; take it there by `swarm pending" in alone.stderr


def test_roles_started_alone_look_for_verdicts_of_the_model_they_are_told(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swarm("run", "--device-model", "nvidia-h200", "--minutes", "0.05").returncode == 0
    paths = root.run("t")
    with Hub(paths) as hub, Ledger(paths) as ledger:
        [seed] = [s for s in hub.commits("double") if s.branch is None]
        key = verdict_key(seed.tree, seed.epoch, "nvidia-b200")
        environment = replace(ENVIRONMENT, device_model="nvidia-b200")
        about = {"key": key, "epoch": seed.epoch, "commit": seed.commit, "environment": environment}
        ledger.record(verdict("double", seed.tree, 7.5, **about))

    def time_us(*options: str) -> float | None:
        paths.board.unlink(missing_ok=True)
        assert swarm("plan", "--rebuild", *options).returncode == 0
        capsys.readouterr()
        assert cli.main(["status", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["problems"][0]["time_us"]
        assert found is None or isinstance(found, float)
        return found

    assert time_us("--device-model", "NVIDIA B200") == pytest.approx(7.5)
    assert time_us() is None, "the run was started for another model"
    again = swarm("run", "--minutes", "0.02")
    assert again.returncode == 0 and "cuda, measured elsewhere on nvidia-h200" in again.stderr
    other = swarm("run", "--language", "cpp")
    assert other.returncode == 1
    assert other.stderr == (
        "swarm: --language cpp: this run is in cuda, and a run has one language; "
        "give another run a name by --run, or leave --language out\n"
    )
    here = swarm("run", "--device", "cpu")
    assert here.stderr == "swarm: device cpu: cuda does not run on the CPU; give --device cuda\n"


def test_what_runs_on_the_cpu_only_is_not_measured_on_a_gpu_elsewhere(root: RunRoot) -> None:
    done = swarm("run", "--device-model", "nvidia-h200", "--language", "cpp")
    assert done.returncode == 1
    assert done.stderr == "swarm: --device-model: cpp does not run on a GPU; name another --language\n"
