"""The command line on a machine with a GPU: devices found, kernels benched, profiled, and a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.cli.devices import chosen_devices
from swarm.device import cores_beside
from swarm.layout import RunRoot
from swarm.peaks_table import model_of
from tests.problem_files import write_double
from tests.support import REPOSITORY

pytestmark = pytest.mark.gpu

KERNEL = """#include "problem.h"
extern "C" __global__ void twice(const float* x, float* y, long long n) {
  long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < REPEAT; ++k) {
    volatile const float* once = x + i;
    *(volatile float*)(y + i) = 2 * *once;
  }
}
"""
MANIFEST = """language = "cuda"
sources = ["kernel.cu"]
[params]
BLOCK = 256
REPEAT = 64
[tune]
BLOCK = [128, 256]
REPEAT = [1, 8, 64]
[[launch]]
kernel = "twice"
grid = ["ceildiv(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n:i64"]
"""
PYTHONPATH = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
TOML = '[run]\nname = "t"\nworkers = 1\n[budget]\nbaseline_s = 2\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRoot:
    """A run root with one problem that has seeds for CPU and GPU, as the current folder."""
    assert cli.main(["init", str(tmp_path / "root")]) == 0
    root = RunRoot(tmp_path / "root")
    root.config.write_text(TOML)
    write_double(root.problem("double"))
    seed = root.problem("double") / "seed" / "cuda"
    seed.mkdir()
    (seed / "kernel.cu").write_text(KERNEL)
    (seed / "solution.toml").write_text(MANIFEST)
    monkeypatch.chdir(root.path)
    return root


def swarm(*words: str, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli.main", *words],
        capture_output=True, text=True, check=False, timeout=timeout_s,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )  # fmt: skip


def test_the_gpus_are_what_nvidia_smi_says() -> None:
    query = ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    said = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    found = chosen_devices("cuda")
    known = {line.split(", ")[0]: line.split(", ")[1:] for line in said}
    assert found and {device.uuid for device in found} <= set(known)
    for device in found:
        name, mib = known[device.uuid]
        assert device.model == model_of(name)
        assert 0.9 < device.memory_bytes / (int(mib) << 20) <= 1.0
        assert device.arch.startswith("sm_") and device.multiprocessors > 0
        assert chosen_devices(device.uuid[:12]) == [device]
    dealt = [core for device in found for core in device.cores]
    assert len(dealt) == len(set(dealt))
    assert not cores_beside(found) & set(dealt)


def test_a_kernel_is_benched_with_what_it_needs_and_reaches_and_profiled_or_the_reason_is_said(
    root: RunRoot,
) -> None:
    done = swarm("bench", "double", "--sass", "--profile", "--json")
    said = json.loads(done.stdout)
    assert f"on {chosen_devices('cuda')[0].model}" in done.stderr
    assert (said["status"], said["language"]) == ("PASSED", "cuda")
    [kernel] = said["kernels"]
    assert kernel["info"]["registers"] > 0 and kernel["occupancy"] > 0.5
    [rate] = said["achieved"]
    assert 0 < rate["bandwidth_share"] < 1
    [code] = said["sass"]
    assert "EXIT" in code["text"]
    if "profile" not in said:
        print(done.stderr)
        assert done.returncode == 1 and "swarm: --profile: " in done.stderr
        return
    assert done.returncode == 0, done.stderr
    [kernel] = said["profile"]["kernels"]
    print(json.dumps(kernel, indent=1)[:4000])
    assert kernel["kernel"].startswith("twice")
    assert {"Duration", "Registers Per Thread"} <= {one["name"] for one in kernel["metrics"]}


@pytest.mark.parametrize("words", [["--device", "cuda:99"], ["--device", "GPU-nothing"]])
def test_a_gpu_that_is_not_there_is_answered_with_those_that_are(root: RunRoot, words: list[str]) -> None:
    done = swarm("bench", "double", *words)
    assert done.returncode == 1
    assert f"cuda:0 ({chosen_devices('cuda')[0].uuid}, " in done.stderr


def test_cpp_stays_on_the_cpu_beside_a_gpu(root: RunRoot) -> None:
    done = swarm("sol", "--device", "cpu", "--json")
    assert json.loads(done.stdout)["peaks"]["device_model"].endswith("core")
    assert (
        json.loads(swarm("sol", "--json").stdout)["peaks"]["device_model"] == chosen_devices("cuda")[0].model
    )
    done = swarm("bench", "double", "--language", "cpp", "--device", "cuda")
    assert done.returncode == 1
    assert done.stderr == "swarm: device cuda: cpp does not run on a GPU; give --device cpu\n"


@pytest.mark.timeout(600)
def test_a_run_takes_the_gpu_by_itself_and_finds_a_faster_kernel(root: RunRoot) -> None:
    done = swarm("run", "--minutes", "0.4", "--json", timeout_s=500)
    print(done.stderr)
    if find_spec("matplotlib") is not None:  # a host without a network may lack it; then only pictures fail
        assert done.returncode == 0, done.stderr
    device = chosen_devices("cuda")[0]
    assert f"cuda on {device.model} ({device.uuid[:12]}" in done.stderr
    board = json.loads(root.run("t").scoreboard_json.read_bytes())
    assert board["device"] == device.model
    [row] = board["problems"]
    assert row["speedup_over_seed"] > 1.5
    assert row["t_sol_us"] > 0
    said = json.loads(swarm("status", "--json").stdout)
    assert said["device_model"] == device.model
    assert [one["device"] for one in said["devices"]] == [one.uuid for one in chosen_devices("cuda")]
    assert sum(one["done"] for one in said["devices"]) >= 4
