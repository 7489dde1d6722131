"""`swarm sol` for a GPU that is not here: its peaks are published, FLOPs are counted on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swarm.cli import main as cli
from swarm.problem import load_problem

ROOT = Path(__file__).parent.parent
SWIGLU_READS, SWIGLU_WRITES = 16 * 28672 * 2, 16 * 14336 * 2
SCORES = 8 * 12 * 384 * 384 * 4
BY_HAND: dict[str, tuple[dict[str, int], dict[str, float], dict[str, float], str, float]] = {
    "swiglu": (
        {"tokens": 16},
        {
            "read gate_up: 16 × 28672 bfloat16": SWIGLU_READS,
            "write output: 16 × 14336 bfloat16": SWIGLU_WRITES,
        },
        {},
        "bytes",
        (SWIGLU_READS + SWIGLU_WRITES) / 4.8e6,
    ),
    "bf16_matmul": (
        {"tokens": 2048, "in_features": 8192, "out_features": 8192},
        {
            "read x: 2048 × 8192 bfloat16": 2048 * 8192 * 2,
            "read weight: 8192 × 8192 bfloat16": 8192 * 8192 * 2,
            "write y: 2048 × 8192 bfloat16": 2048 * 8192 * 2,
        },
        {"aten.mm": 2 * 2048 * 8192 * 8192},
        "FLOPs",
        2 * 2048 * 8192 * 8192 / 989.4e6,
    ),
    "causal_prefill": (
        {"batch": 1, "tokens": 1000},
        {
            "read query: 1 × 1000 × 64 × 128 bfloat16": 1000 * 64 * 128 * 2,
            "read key: 1 × 1000 × 8 × 128 bfloat16": 1000 * 8 * 128 * 2,
            "read value: 1 × 1000 × 8 × 128 bfloat16": 1000 * 8 * 128 * 2,
            "write output: 1 × 1000 × 64 × 128 bfloat16": 1000 * 64 * 128 * 2,
        },
        {
            "4 * head_dim * query_heads * batch * (tokens * (tokens + 1) // 2)": 4
            * 128
            * 64
            * sum(range(1001))
        },
        "FLOPs",
        4 * 128 * 64 * sum(range(1001)) / 989.4e6,
    ),
    "masked_softmax": (
        {"batch": 8, "query_len": 384, "key_len": 384},
        {
            "read scores: 8 × 12 × 384 × 384 float32": SCORES,
            "read mask: 8 × 384 × 384 bool": 8 * 384 * 384,
            "write weights: 8 × 12 × 384 × 384 float32": SCORES,
        },
        {"0": 0},
        "bytes",
        (2 * SCORES + 8 * 384 * 384) / 4.8e6,
    ),
    "int8_matvec": (
        {"out_features": 4096, "in_features": 4096},
        {
            "read x: 4096 bfloat16": 8192,
            "read weight: 4096 × 4096 int8": 4096 * 4096,
            "read scales: 4096 bfloat16": 8192,
            "write y: 4096 bfloat16": 8192,
        },
        {"aten.mv": 2 * 4096 * 4096},
        "bytes",
        (4096 * 4096 + 3 * 8192) / 4.8e6,
    ),
}
"""Problem -> a workload's axes, its bytes and its FLOPs by term, what binds, and T_SOL at an H200's peaks."""


@pytest.fixture(scope="module")
def explained() -> list[dict[str, Any]]:
    found = _sol("--explain", *BY_HAND)["limits"]
    assert {one["problem"] for one in found} == set(BY_HAND)
    return found


def _sol(*arguments: str) -> Any:
    import contextlib
    import io

    words = ["--root", str(ROOT), "sol", *arguments, "--device-model", "NVIDIA H200", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(words) == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", BY_HAND)
def test_a_limit_is_explained_by_the_terms_that_one_counts_by_hand(
    name: str, explained: list[dict[str, Any]]
) -> None:
    axes, moved, flops, bound, t_sol_us = BY_HAND[name]
    [uuid] = [w.uuid for w in load_problem(ROOT / "problems" / name).workloads if w.axes == axes]
    [one] = [one for one in explained if one["problem"] == name and one["workload"] == uuid]
    terms = one["explanation"]
    assert {term["what"]: term["amount"] for term in terms["bytes"]} == moved
    assert {term["what"]: term["amount"] for term in terms["flops"]} == flops
    assert (terms["bound"], one["t_sol_us"]) == (bound, pytest.approx(t_sol_us, rel=1e-9))


def test_the_terms_of_every_workload_add_up_to_its_limit(explained: list[dict[str, Any]]) -> None:
    for one in explained:
        terms = one["explanation"]
        assert sum(term["amount"] for term in terms["bytes"]) == one["bytes"]
        assert sum(term["amount"] for term in terms["flops"]) == one["flops"]
        assert max(terms["bytes_us"], terms["flops_us"]) == one["t_sol_us"]


def test_an_explanation_says_which_limit_binds_and_at_which_peak(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--root", str(ROOT), "sol", "swiglu", "--explain", "--device-model", "nvidia-h200"]
    assert cli.main(words) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    start = next(i for i, line in enumerate(lines) if "tokens=16," in line)
    assert lines[start + 2 : start + 7] == [
        "read gate_up: 16 × 28672 bfloat16 917.5 kB",
        "write output: 16 × 14336 bfloat16 458.8 kB",
        "all bytes 1.376 MB at 4,800 GB/s 0.287 ← this binds",
        "FLOPs: torch's counter finds none in the reference",
        "T_SOL 0.287 quarantined below 0.191",
    ]


def test_the_limits_on_a_gpu_need_no_gpu() -> None:
    found = _sol("swiglu")
    assert found["peaks"]["device_model"] == "nvidia-h200"
    problem = load_problem(ROOT / "problems" / "swiglu")
    assert [one["workload"] for one in found["limits"]] == [w.uuid for w in problem.workloads]
    assert not any(one["is_weak"] or "explanation" in one for one in found["limits"])
    for one, workload in zip(found["limits"], problem.workloads, strict=True):
        assert one["bytes"] == problem.sol_bytes(workload)
        assert one["t_sol_us"] >= one["bytes"] / 4.8e6
        assert one["floor_us"] <= one["t_sol_us"]


def test_an_unknown_gpu_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--root", str(ROOT), "sol", "swiglu", "--device-model", "h2000"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("swarm: ") and "no peaks are known for the GPU 'h2000'" in line
    assert "results/baselines/h2000/peaks.json" in line
