"""Builders of result records with sane defaults."""

from __future__ import annotations

from typing import Any

from swarm.verdict import (
    JUDGE_VERSION,
    Comparison,
    Environment,
    Outcome,
    Status,
    Trust,
    Verdict,
    WorkloadRatio,
    WorkloadResult,
    verdict_key,
)

DEVICE = "test-cpu-1-core"
ENVIRONMENT = Environment(DEVICE, "cpu-x-1", "clock", "rlimits", Trust.HOST, {"python": "3.11"})


def verdict(problem: str = "p", tree: str = "t1", time_us: float = 10.0, **changes: Any) -> Verdict:
    status = changes.pop("status", Status.PASSED)
    time = time_us if status in (Status.PASSED, Status.BELOW_SOL) else None
    fields: dict[str, Any] = {
        "key": verdict_key(tree, "e1", DEVICE),
        "problem": problem,
        "epoch": "e1",
        "tree": tree,
        "commit": "c" * 40,
        "language": "cpp",
        "judge_version": JUDGE_VERSION,
        "status": status,
        "reason": "",
        "workloads": tuple(WorkloadResult(f"w{n}", status, "", time, 0.1, 50, 2.0) for n in range(3)),
        "environment": ENVIRONMENT,
        "seed": "00",
        "created_s": 1000.0,
        "measured_s": 0.5,
        "total_s": 1.5,
    }
    return Verdict(**fields | changes)


def comparison(problem: str = "p", id_: str = "a-b-1", **changes: Any) -> Comparison:
    fields: dict[str, Any] = {
        "id": id_,
        "problem": problem,
        "epoch": "e1",
        "judge_version": JUDGE_VERSION,
        "champion_tree": "t1",
        "candidate_tree": "t2",
        "outcome": Outcome.FASTER,
        "reason": "faster on every workload",
        "workloads": (WorkloadRatio("w0", 1.1, 1.05, 1.15, 30),),
        "environment": ENVIRONMENT,
        "seed": "00",
        "created_s": 1000.0,
        "measured_s": 0.5,
        "ratio": 1.1,
    }
    return Comparison(**fields | changes)
