"""The seeds for a GPU compute what the references do, run on the CPU thread by thread at small sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.solution import load_manifest, with_params
from tests.gpu.emulated import matches
from tests.suite.shipped import SEVEN, seeded, shipped, written

CASES = [(name, corner) for name in seeded("cuda") for corner in ("seed", "last")[: 1 + (name in SEVEN)]]


@pytest.mark.parametrize(("name", "corner"), CASES)
def test_seed_computes_what_the_reference_does(name: str, corner: str, tmp_path: Path) -> None:
    problem, tree = shipped(name), shipped(name).seeds["cuda"]
    if corner == "last":
        tree = with_params(tree, {knob: values[-1] for knob, values in load_manifest(tree).tune.items()})
    small = with_workloads(problem, written("SMALL")[name], problem.workloads[0].scalars)
    found = matches(small, tree, tmp_path)
    assert len(found) == 2 * len(small.workloads) * len(problem.definition.outputs)
    for match in found:
        assert match.passed, match.reason
