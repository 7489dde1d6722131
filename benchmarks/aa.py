"""How often does the judge see a difference where there is none, and how often does it miss one of 5 %?

    python -m benchmarks.aa --comparisons 100 --differences 20 [--problem NAME] [--busy]

A/A compares a problem's seed with itself; the difference is a kernel that does 100 rounds of arithmetic
against one that does 105. `--busy` keeps every other core at work meanwhile, as agents and compilers would.
Prints JSON; exit code 1 if a target is missed (more than one FASTER in 100, fewer than nine of ten found).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarm.device import cpu_device, other_cores
from swarm.job import Job, Purpose, Tree
from swarm.judge import peaks
from swarm.judge.judge import Judge
from swarm.problem import Problem, load_problem, problem_from_files
from swarm.verdict import Comparison, Outcome

ROOT = Path(__file__).resolve().parents[1]
MAX_FALSE, MIN_FOUND = 0.01, 0.9
ROUNDS, MORE_ROUNDS = 105, 100
"""The champion's and the candidate's: the candidate is 5 % faster."""
ARITHMETIC = {
    "definition.json": json.dumps(
        {
            "name": "arithmetic",
            "axes": {"n": {"type": "var"}},
            "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": "def run(x):\n    return x * 1.0\n",
        }
    ).encode(),
    "workload.jsonl": b"".join(
        json.dumps({"uuid": f"n-{n}", "axes": {"n": n}, "inputs": {"x": {"type": "random"}}}).encode() + b"\n"
        for n in (20_000, 30_000, 45_000, 60_000)
    ),
}
ARITHMETIC["workload.cpu.jsonl"] = ARITHMETIC["workload.jsonl"]
KERNEL = b"""#include "problem.h"
extern "C" void run(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    float v[16];
    for (int j = 0; j < 16; ++j) v[j] = i + j < n ? x[i + j] : 0.0f;
    for (int r = 0; r < ROUNDS; ++r)
      for (int j = 0; j < 16; ++j) v[j] = v[j] * 1.000001f + 1e-9f;
    for (int j = 0; j < 16 && i + j < n; ++j) y[i + j] = v[j];
  }
}
"""


def job(problem: Problem, champion: Tree, candidate: Tree) -> Job:
    files = {**problem.files, "COORDINATION.md": (ROOT / "COORDINATION.md").read_bytes()}
    return Job("aa", Purpose.COMPARISON, problem.name, problem.name, files, candidate, champion)


def arithmetic(rounds: int) -> Tree:
    manifest = f'language = "cpp"\nsources = ["kernel.cpp"]\n[params]\nROUNDS = {rounds}\n'
    return Tree(f"{rounds:040d}", "0" * 40, {"solution.toml": manifest.encode(), "kernel.cpp": KERNEL})


def run(judge: Judge, work: Job, count: int, name: str) -> dict[str, Any]:
    """Play one comparison `count` times and return what came of it."""
    found: list[Comparison] = []
    seconds = []
    for number in range(count):
        begun = time.monotonic()
        comparison = judge.compare(replace(work, id=f"{name}-{number}"))
        seconds.append(time.monotonic() - begun)
        if comparison.ratio is None:
            raise RuntimeError(comparison.reason)
        found.append(comparison)
        print(f"{name} {number + 1}/{count}: {comparison.outcome} {comparison.reason}", file=sys.stderr)
    ratios = sorted(comparison.ratio for comparison in found if comparison.ratio is not None)
    return {
        "comparisons": count,
        "outcomes": dict(Counter(comparison.outcome for comparison in found)),
        "ratio": {"least": ratios[0], "median": statistics.median(ratios), "most": ratios[-1]},
        "ratio_deviation": statistics.pstdev(ratios),
        "seconds_median": statistics.median(seconds),
    }


@contextmanager
def busy(cores: Sequence[int]) -> Iterator[None]:
    """Keep `cores` at work: arithmetic and memory traffic."""
    workers = [multiprocessing.get_context("spawn").Process(target=_work, args=(core,)) for core in cores]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _work(core: int) -> None:
    import os

    os.sched_setaffinity(0, {core})
    data = bytearray(64 << 20)
    while True:
        data[: 32 << 20] = data[32 << 20 :]
        sum(range(1_000_000))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--differences", type=int, default=20)
    parser.add_argument("--problem", default="rmsnorm_residual")
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    device, others = cpu_device(), sorted(other_cores())
    problem = load_problem(ROOT / "problems" / options.problem)
    seed = Tree("0" * 40, "0" * 40, problem.seeds["cpp"])
    synthetic = problem_from_files(ARITHMETIC, "arithmetic")
    with tempfile.TemporaryDirectory() as folder, busy(others if options.busy else []):
        limits = peaks.load(Path(folder) / "peaks.json", device, Path(folder))
        with Judge(device, Path(folder), limits) as judge:
            same = run(judge, job(problem, seed, seed), options.comparisons, "A/A")
            trees = arithmetic(ROUNDS), arithmetic(MORE_ROUNDS)
            other = run(judge, job(synthetic, *trees), options.differences, "5 %")
    is_good = (
        same["outcomes"].get(Outcome.FASTER, 0) <= max(1, MAX_FALSE * options.comparisons)
        and other["outcomes"].get(Outcome.FASTER, 0) >= MIN_FOUND * options.differences
    )
    result = {
        "device": device.model,
        "busy": options.busy,
        "a_a": same,
        "five_percent": other,
        "passed": is_good,
    }
    print(json.dumps(result, indent=1))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
