"""What Nsight Compute prints is read, and what keeps it from working is told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.device import Device
from swarm.judge.build import Built, Frozen, build
from swarm.judge.cuda import candidates, profile, profile_main, wire
from swarm.problem import load_problem
from swarm.protocol import read_protocol
from tests.problem_files import write_double
from tests.support import REPOSITORY

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",'
    '"Rule Description","Estimated Speedup Type","Estimated Speedup"'
)


def line(number: int, kernel: str, *cells: str) -> str:
    start = (str(number), "7", "python3.12", "127.0.0.1", kernel, "1", "13", "(256, 1, 1)", "(391, 1, 1)")
    words = [*start, "0", "9.0", *cells]
    return ",".join(f'"{word}"' for word in [*words, *[""] * (20 - len(words))])


REPORT = [
    "==PROF== Connected to process 7 (/usr/bin/python3.12)",
    '==PROF== Profiling "twice" - 0: 0%....50%....100% - 9 passes',
    "==PROF== Disconnected from process 7",
    HEAD,
    line(0, "twice", "GPU Speed Of Light Throughput", "Duration", "ns", "2,496"),
    line(0, "twice", "GPU Speed Of Light Throughput", "DRAM Throughput", "%", "37.42"),
    line(
        0, "twice", "GPU Speed Of Light Throughput", "", "", "", "SOLBottleneck", "OPT", "Too small a grid."
    ),
    line(1, "void add<8>(float *, int)", "Occupancy", "Theoretical Occupancy", "%", "100"),
]


def test_metrics_and_advice_belong_to_their_kernel() -> None:
    first, second = profile.read(REPORT)
    assert (first.kernel, first.grid, first.block) == ("twice", "(391, 1, 1)", "(256, 1, 1)")
    assert [(one.name, one.value, one.unit) for one in first.metrics] == [
        ("Duration", "2,496", "ns"),
        ("DRAM Throughput", "37.42", "%"),
    ]
    assert first.advice == ("Too small a grid.",)
    assert (second.kernel, second.advice) == ("void add<8>(float *, int)", ())
    assert profile.read([]) == profile.read(REPORT[:3]) == []


def test_a_driver_that_keeps_its_counters_to_root_is_named() -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU ..."
    assert "to the administrator only" in profile._reason("exit code 1", said, "")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in profile._remedy(said)


def test_what_ncu_says_is_passed_on() -> None:
    said = "==PROF== Connected\n==ERROR== The application returned an error code (1).\n"
    reason = profile._reason("exit code 1", said, "KeyError: 'x'")
    assert reason == "ncu saw no kernel (exit code 1): The application returned an error code (1)."
    assert (
        profile._reason("exit code 1", "", "a\nKeyError: 'x'\n")
        == "ncu saw no kernel (exit code 1): KeyError: 'x'"
    )
    assert "did not end within 300 s" in profile._reason(profile.TIMED_OUT, "", "")


GPU = Device("cuda", "nvidia-h200", "GPU-absent", (0,), "sm_90a")
PYTORCH = {
    "solution.toml": b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n',
    "kernel.py": b"import torch\n\n\ndef run(x, y):\n    torch.add(x, x, out=y)\n",
}


def test_a_call_is_laid_out_as_a_candidate_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_double(tmp_path / "double")
    problem = load_problem(tmp_path / "double")
    protocol = read_protocol((REPOSITORY / "COORDINATION.md").read_bytes())
    built = build(PYTORCH, Frozen(problem, protocol), GPU, tmp_path / "cache")
    assert isinstance(built, Built)
    [workload] = problem.workloads_on(GPU)
    profile._lay_out(tmp_path, built.artifact, problem, workload)
    spec = json.loads((tmp_path / profile_main.SPEC).read_text())
    assert spec["needs_torch"] and spec["axes"] == {"n": 100_000}
    x, y = spec["arguments"]
    content = (tmp_path / profile_main.CONTENT).read_bytes()
    assert len(content) == spec["arena_bytes"] and x != y
    assert any(content[x : x + 400_000])
    head, files = wire.unpack_load((tmp_path / profile_main.LOAD).read_bytes())
    monkeypatch.setenv("HOME", str(tmp_path))
    layout = wire.Layout.from_json(head["layout"])
    candidate = candidates.load(None, layout, 0, head, files)
    assert isinstance(candidate, candidates.PythonCandidate)
