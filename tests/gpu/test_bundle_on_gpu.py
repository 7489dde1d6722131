"""The bundle and the local pool on real GPUs: `cuda` trees leave, are judged and compared, and come home."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from swarm.baseline import Baseline, Contender, save_baseline
from swarm.cli import main as cli
from swarm.cli.devices import chosen_devices, open_pool
from swarm.contents import files_hash
from swarm.device import Device
from swarm.hub import Hub
from swarm.job import Job, Purpose, Tree
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.plan import Planner
from swarm.planner.decisions import Merge, RequestComparison
from swarm.pool.protocol import Done
from swarm.problem import load_problem
from swarm.requests import requests
from swarm.solution import with_params
from swarm.verdict import JUDGE_VERSION, Outcome, Status, Verdict
from tests.problem_files import write_double

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

KERNEL = """#include "problem.h"
extern "C" __global__ void twice(const float* x, float* y, long long n) {
  const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < REPEAT; ++k) {
    volatile const float* once = x;
    *(volatile float*)(y + i) = 2 * once[i];
  }
}
"""
MANIFEST = """language = "cuda"
sources = ["kernel.cu"]
[params]
BLOCK = 256
REPEAT = 64
[[launch]]
kernel = "twice"
grid = ["ceildiv(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n:i64"]
"""
SEED = {"kernel.cu": KERNEL.encode(), "solution.toml": MANIFEST.encode()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunRoot]:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    assert cli.main(["init", str(tmp_path / "root")]) == 0
    root = RunRoot(tmp_path / "root")
    root.config.write_text('[run]\nname = "t"\n')
    write_double(root.problem("double"))
    monkeypatch.chdir(root.path)
    yield root


def frozen(root: RunRoot) -> dict[str, bytes]:
    files = load_problem(root.problem("double")).files
    return {**files, root.coordination.name: root.coordination.read_bytes()}


def test_cuda_trees_leave_and_come_home_as_a_merge(
    root: RunRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, out, bundle = root.run("t"), tmp_path / "out", tmp_path / "b.zip"
    [device, *_] = chosen_devices("cuda:0")
    with Hub(paths) as hub:
        hub.ensure()
        hub.ensure_epoch("double", frozen(root), SEED, "planner")
        branch = hub.assign("double", "w1")
        for repeat in (4, 1):
            hub.submit("w1", branch, with_params(SEED, {"REPEAT": repeat}), None, f"Repeat {repeat}", {})
        hub.submit("w1", branch, {**SEED, "kernel.cu": b"this is not CUDA"}, None, "Break it", {})
    _store_baseline(root, device)
    assert cli.main(["pending", "--bundle", str(bundle), "--device-model", device.model]) == 0
    capsys.readouterr()
    assert (
        cli.main(["bench", "--bundle", str(bundle), "--out", str(out), "--device", "cuda:0", "--json"]) == 0
    )
    [row] = json.loads(capsys.readouterr().out)["problems"]
    assert (row["verdicts"], row["passed"], row["left"]) == (4, 3, 0) and row["comparisons"] >= 2
    assert cli.main(["results", "import", str(out / "results.zip"), "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert (taken["verdicts"], taken["baselines"], taken["faults"]) == (4, 0, [])
    with Hub(paths) as hub, Ledger(paths) as ledger:
        planner = Planner(paths, hub, ledger, device.model, root.coordination, lambda *_: None)
        decisions = [decision for _ in range(6) for decision in planner.step()]
        assert [d for d in decisions if isinstance(d, Merge)] and not requests(paths)[0]
        assert not [d for d in decisions if isinstance(d, RequestComparison)]
        champion = hub.champions()["double"]
        assert b"REPEAT = 1\n" in hub.solution_files(champion)["solution.toml"]
        assert {c.outcome for c in ledger.comparisons("double")} >= {Outcome.FASTER}


def _store_baseline(root: RunRoot, device: Device) -> None:
    """Put one on file: measuring it takes longer than all the rest, and has tests of its own."""
    files = files_hash(load_problem(root.problem("double")).files)
    contender = Contender("eager", {"w1": 5.0}, {})
    save_baseline(root, Baseline("double", device.model, files, JUDGE_VERSION, 1.0, (contender,)))


def test_two_gpus_work_on_one_queue(root: RunRoot) -> None:
    devices = chosen_devices("cuda")[:2]
    if len(devices) < 2:
        pytest.skip("one GPU of this model is here")
    assert not set(devices[0].cores) & set(devices[1].cores)
    files = frozen(root)
    with closing(open_pool(root, devices)) as pool:
        for number in range(12):
            tree = with_params(SEED, {"REPEAT": number + 1})
            job = Job(f"job-{number}", Purpose.VERDICT, "double", "e1", files, Tree("a" * 40, "b" * 40, tree))
            pool.submit(job)
        found = []
        while len(found) < 12:
            found += pool.poll(1.0)
        states = pool.devices()
    records = [item.record for item in found if isinstance(item, Done)]
    assert len(records) == 12, [item for item in found if not isinstance(item, Done)]
    assert {r.status for r in records if isinstance(r, Verdict)} == {Status.PASSED}
    assert {r.environment.device_uuid for r in records} == {device.uuid for device in devices}
    assert all(state.done for state in states)
