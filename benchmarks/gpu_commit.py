"""From a commit in a hub to its verdict on a GPU, through `swarm watch`; this needs git and GitPython."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu_jobs import Bench, Part, Row
from swarm.layout import RunRoot
from tests.gpu import trees

CALLS = 50
WITHIN_S = {"cuda": 2.0, "cuda_cpp": 4.0, "triton": 7.0}
PROBLEM = "rmsnorm"


def commit(bench: Bench, count: int) -> Part:
    """Commit variants of the RMSNorm one by one: 14 workloads, 50 checked calls of each."""
    from benchmarks import latency  # it imports GitPython, which a GPU host may lack

    rows: list[Row] = []
    figures: dict[str, Any] = {}
    options = ["--device", bench.device.uuid]
    cores = os.sched_getaffinity(0)
    for index, (language, within_s) in enumerate(WITHIN_S.items()):
        until_s = bench.until_s(index, len(WITHIN_S))
        root = _root(bench.folder / f"root-{language}", language)
        try:
            found = latency.measure(root, PROBLEM, language, count, options, until_s)
        finally:
            os.sched_setaffinity(0, cores)
        failed = [row["reason"] for row in found if row["status"] != "PASSED"]
        if failed:
            raise RuntimeError(f"{language}: {failed[0]}")
        seconds = [row["total_s"] for row in found]
        median_s = statistics.median(seconds)
        seen = f"{median_s:.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
        rows.append((f"commit to verdict, {language}", f"{within_s:g} s", seen, median_s <= within_s))
        figures[language] = {"seconds": seconds, "device_held_s": [row["measured_s"] for row in found]}
        print(language, seen, file=sys.stderr)
    return Part(rows, figures)


def _root(folder: Path, language: str) -> RunRoot:
    """Write a run root whose only problem is the RMSNorm, with a seed in this language."""
    root = RunRoot(folder)
    seed = root.problem(PROBLEM) / "seed" / language
    shutil.copytree(trees.HERE / "problems" / PROBLEM, root.problem(PROBLEM))
    shutil.copytree(trees.HERE / "solutions" / PROBLEM / language, seed)
    shutil.copy(trees.ROOT / root.config.name, root.config)
    rules = trees.coordination(min_calls=CALLS, max_calls=CALLS, budget_s=10.0)
    root.coordination.write_text(rules)
    return root
