"""Does the judge, with dirty caches, read what SOL-ExecBench's method reads for the same kernel?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu_jobs import Bench, Part, Row
from tests.gpu import trees

ROOT = Path(__file__).resolve().parents[1]
FIGURES = Path(__file__).with_name("sol_execbench_h200.json")
"""SOL-ExecBench's own medians of NVIDIA's own kernels; the file says where they come from."""
ABOVE_US, WITHIN_SHARE, WITHIN_US = 20.0, 0.02, 0.3
METHOD_S = 300.0
KERNELS = ("rmsnorm/cuda", "rmsnorm/triton")


def agreement(bench: Bench, _: int) -> Part:
    """Time two kernels both ways, on the 14 workloads of RMSNorm; the same process order for all."""
    problem = trees.problem("rmsnorm")
    batches = sorted(workload.axes["batch_size"] for workload in problem.workloads)
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    published = json.loads(FIGURES.read_bytes())["rmsnorm_h4096_bf16"]
    for name in KERNELS:
        by_method = _method_us(name, bench.folder / "method", batches)
        verdict, _took_s = bench.verdict(
            problem, trees.solution(name), f"dirty-{name}", flush='"dirty"', min_calls=50, budget_s=2.0
        )
        sizes = {item.uuid: item.axes["batch_size"] for item in problem.workloads}
        by_judge = {sizes[item.uuid]: item.time_us for item in verdict.workloads}
        clocks = {sizes[item.uuid]: item.clock for item in verdict.workloads}
        table, worst_us, worst_share = [], 0.0, 0.0
        for batch in batches:
            judge_us, method_us = by_judge[batch], by_method[batch]
            assert judge_us is not None
            if method_us > ABOVE_US:
                worst_share = max(worst_share, abs(judge_us / method_us - 1))
            else:
                worst_us = max(worst_us, abs(judge_us - method_us))
            table.append(
                {"batch_size": batch, "judge_us": judge_us, "method_us": method_us, "clock": clocks[batch]}
            )
            print(f"{name} {batch}: judge {judge_us:.2f} us, method {method_us:.2f} us", file=sys.stderr)
        is_close = worst_share <= WITHIN_SHARE and worst_us <= WITHIN_US
        seen = f"{100 * worst_share:.1f} % and {worst_us:.2f} us"
        rows.append((f"judge against method, {name}", "2 % and 0.3 us", seen, is_close))
        figures[name] = table
        if name.endswith("triton"):
            rows.append(_published_row(by_judge, published))
    return Part(rows, figures)


def _published_row(by_judge: dict[int, float | None], published: list[dict[str, Any]]) -> Row:
    """Tell how our Triton kernel, timed by us, relates to NVIDIA's, timed by SOL-ExecBench."""
    ratios = [(by_judge[item["batch_size"]] or 0) / item["triton_us"] for item in published]
    return (
        "  our Triton kernel / NVIDIA's as published",
        "-",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        None,
    )


def _method_us(name: str, cache: Path, batches: list[int]) -> dict[int, float]:
    """Run SOL-ExecBench's method in a process of its own, as it does."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_sol", name, str(cache), *map(str, batches)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=METHOD_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return {int(batch): float(us) for batch, us in json.loads(done.stdout.splitlines()[-1]).items()}
