"""From commit to verdict: how much longer than the measuring itself?

    python -m benchmarks.latency --commits 20 [--problem NAME]

A real hub, `swarm watch` as a process of its own, commits that must each be compiled (one parameter
differs). Seconds run from before the commit to the result file; what the device was held for is taken off.
Prints JSON; exit code 1 if the median overhead is above 2 s.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.variants import variant
from swarm.device import cpu_device, other_cores
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.problem import load_problem
from swarm.verdict import Verdict

ROOT = Path(__file__).resolve().parents[1]
MAX_OVERHEAD_S = 2.0
LONGEST_S = 120.0
POLL_S = 0.005
WORKER, RUN = "w1", "latency"


def measure(
    root: RunRoot,
    problem_name: str,
    language: str,
    commits: int,
    watch: Sequence[str] = (),
    until_s: float = math.inf,
) -> list[dict[str, Any]]:
    """Commit one variant of a seed after the other, each once the one before has its verdict.

    `watch` are options of `swarm watch`; after `until_s`, a monotonic time, nothing more is committed.
    """
    paths = root.run(RUN)
    problem = load_problem(root.problem(problem_name))
    seed = problem.seeds[language]
    with Hub(paths) as hub, Ledger(paths) as ledger:
        hub.ensure()
        files = {**problem.files, "COORDINATION.md": root.coordination.read_bytes()}
        epoch = hub.ensure_epoch(problem_name, files, seed, "planner")
        with _watcher(root, watch):
            _wait_for(ledger, problem_name, {epoch.commit})
            branch = hub.assign(problem_name, WORKER)
            rows: list[dict[str, Any]] = []
            for number in range(commits):
                if rows and time.monotonic() > until_s:
                    break
                begun = time.time()
                tree = variant(seed, number)
                commit = hub.submit(WORKER, branch, tree, None, f"Variant {number}", {})
                verdict = _wait_for(ledger, problem_name, {commit})
                total_s = time.time() - begun
                rows.append(
                    {
                        "status": verdict.status,
                        "reason": verdict.reason,
                        "total_s": total_s,
                        "measured_s": verdict.measured_s,
                        "overhead_s": total_s - verdict.measured_s,
                    }
                )
                print(f"{number + 1}/{commits}: {rows[-1]}", file=sys.stderr)
    return rows


def _make_root(folder: Path, problem_name: str) -> RunRoot:
    root = RunRoot(folder)
    for source in (root.coordination.name, root.config.name):
        shutil.copy(ROOT / source, folder / source)
    shutil.copytree(ROOT / "problems" / problem_name, root.problem(problem_name))
    return root


@contextmanager
def _watcher(root: RunRoot, options: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "swarm.cli.main", "--root", str(root.path), "watch", "--run", RUN, *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=sys.stderr,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(ledger: Ledger, problem: str, commits: set[str]) -> Verdict:
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        for verdict in ledger.verdicts(problem):
            if verdict.commit in commits:
                return verdict
        time.sleep(POLL_S)
    raise TimeoutError(f"no verdict on {commits} within {LONGEST_S:g} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--problem", default="rmsnorm_residual")
    options = parser.parse_args()
    device = cpu_device()
    os.sched_setaffinity(0, other_cores())  # as workers do
    with tempfile.TemporaryDirectory() as folder:
        root = _make_root(Path(folder), options.problem)
        rows = measure(root, options.problem, "cpp", options.commits)
    overhead_s = statistics.median(row["overhead_s"] for row in rows)
    result = {
        "device": device.model,
        "problem": options.problem,
        "commits": len(rows),
        "overhead_s_median": overhead_s,
        "overhead_s_most": max(row["overhead_s"] for row in rows),
        "measured_s_median": statistics.median(row["measured_s"] for row in rows),
        "total_s_median": statistics.median(row["total_s"] for row in rows),
        "passed": overhead_s <= MAX_OVERHEAD_S,
    }
    print(json.dumps(result, indent=1))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
