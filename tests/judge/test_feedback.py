"""Occupancy and rates are what registers, shared memory, times and peaks say, without a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.cli import feedback as printed
from swarm.judge import feedback
from swarm.judge.build import Frozen
from swarm.languages.protocol import Artifact, Kind
from swarm.layout import RunRoot
from swarm.protocol import read_protocol
from swarm.sol import Peaks
from swarm.verdict import Environment, Status, Trust, Verdict, WorkloadResult
from tests.languages import test_cuda, test_cuda_cpp

ROOT = Path(__file__).parent.parent.parent
PEAKS = Peaks("gpu-sm_90a", 4000.0, {"bfloat16": 900e3, "float32": 450e3}, "a test")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_plan_tells_the_blocks_and_occupancy_of_each_launch(cache: Path) -> None:
    artifact = test_cuda.made(test_cuda.compiled(cache))
    uses = feedback.kernel_uses(artifact, test_cuda.problem(), test_cuda.gpu())
    told = [(use.info.name, use.build, use.threads, use.smem_bytes, use.blocks) for use in uses]
    assert told == [
        ("scale<BLOCK>", "BLOCK=32", 32, 128, (4096, 4096)),
        ("nothing", "", 32, 0, (1, 1)),
    ]
    assert [(use.resident_blocks, use.occupancy) for use in uses] == [(32, 0.5), (32, 0.5)]


def test_an_object_tells_what_its_launch_bounds_allow(cache: Path) -> None:
    artifact = test_cuda_cpp.compiled(cache)
    assert isinstance(artifact, Artifact)
    [use] = feedback.kernel_uses(artifact, test_cuda.problem(), test_cuda.gpu())
    assert (use.threads, use.smem_bytes, use.blocks) == (64, 256, None)
    assert use.resident_blocks == 32 and use.occupancy == 1.0


def test_python_tells_nothing_ahead(tmp_path: Path) -> None:
    artifact = Artifact(Kind.PYTHON, tmp_path, "kernel.py::run")
    assert feedback.kernel_uses(artifact, test_cuda.problem(), test_cuda.gpu()) == []


def verdict(time_us: float, t_sol_us: float) -> Verdict:
    result = WorkloadResult("w1", Status.PASSED, time_us=time_us, t_sol_us=t_sol_us)
    where = Environment("gpu-sm_90a", "GPU-0", "events", "namespaces", Trust.DEVICE_ONLY, {})
    return Verdict(
        "key", "scale_rows", "epoch", "tree", "commit", "cuda", 1, Status.PASSED, "", (result,), where,
        "seed", 0.0, 1.0, 1.0,
    )  # fmt: skip


def test_rates_are_shares_of_the_peaks() -> None:
    problem = test_cuda.problem()
    moved = problem.sol_bytes(problem.workloads[0])
    by_bytes_us = moved / PEAKS.bytes_per_us
    [bound_by_bytes] = feedback.achieved(
        verdict(2 * by_bytes_us, by_bytes_us), problem, test_cuda.gpu(), PEAKS
    )
    assert bound_by_bytes.gbps == pytest.approx(2000)
    assert bound_by_bytes.bandwidth_share == pytest.approx(0.5)
    assert bound_by_bytes.flops_share is None
    [bound_by_flops] = feedback.achieved(
        verdict(20 * by_bytes_us, 10 * by_bytes_us), problem, test_cuda.gpu(), PEAKS
    )
    assert bound_by_flops.bandwidth_share == pytest.approx(0.05)
    assert bound_by_flops.flops_share == pytest.approx(0.5)


def test_it_can_be_printed_and_is_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    protocol = read_protocol((ROOT / "COORDINATION.md").read_bytes(), "COORDINATION.md")
    rules = Frozen(test_cuda.problem(), protocol)
    tree = {name: text.encode() for name, text in test_cuda.FILES.items()}
    root = RunRoot(tmp_path)
    told = printed.collect(root, rules, tree, test_cuda.gpu(), verdict(10.0, 1.0), PEAKS, sass=True)
    json.dumps(told)
    printed.show(told)
    out = capsys.readouterr().out
    assert "scale<BLOCK>" in out and "BLOCK=32" in out and "4096" in out and "50 %" in out
    assert "EXIT" in out and "of FLOP limit" in out
    broken = tree | {"kernel.cu": b"int x y;"}
    assert printed.collect(root, rules, broken, test_cuda.gpu(), sass=True) == {
        "kernels": [],
        "achieved": [],
        "sass": [],
    }
