"""The problems that ship are well formed, and their seeds leave something to find."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from swarm.problem import Problem, load_problem
from swarm.protocol import load_protocol
from swarm.solution import Manifest, load_manifest, validate_tree

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.name for path in (ROOT / "problems").iterdir() if path.is_dir())


@pytest.fixture(params=NAMES)
def problem(request: pytest.FixtureRequest) -> Problem:
    return load_problem(ROOT / "problems" / request.param)


@pytest.fixture
def manifest(problem: Problem) -> Manifest:
    return load_manifest(problem.seeds["cpp"])


def test_at_least_seven_problems_ship() -> None:
    assert len(NAMES) >= 7


def test_seed_keeps_to_the_protocol(problem: Problem) -> None:
    protocol = load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md")
    validate_tree(problem.seeds["cpp"], protocol)


def test_space_is_large_enough_to_search_and_starts_at_the_seed(manifest: Manifest) -> None:
    assert 50 <= math.prod(map(len, manifest.tune.values())) <= 500
    assert manifest.params.keys() == manifest.tune.keys()
    for name, value in manifest.params.items():
        assert value in manifest.tune[name]


def test_seed_says_what_every_knob_does(problem: Problem, manifest: Manifest) -> None:
    comment = problem.seeds["cpp"]["kernel.cpp"].decode().partition("#include")[0]
    for name in manifest.params:
        assert f"// {name} " in comment


def test_cpu_workloads_are_few_and_small(problem: Problem) -> None:
    assert 3 <= len(problem.cpu_workloads) <= 4
    for workload in problem.cpu_workloads:
        assert 2**19 <= problem.sol_bytes(workload) <= 2**24


def test_gpu_workloads_cover_small_and_large(problem: Problem) -> None:
    sizes = [problem.sol_bytes(workload) for workload in problem.workloads]
    assert 4 <= len(sizes) <= 8
    assert max(sizes) > 10 * min(sizes)


def test_every_element_counts_and_tolerance_is_the_problems_own(problem: Problem) -> None:
    tolerance = problem.settings.tolerance
    assert tolerance.required_matched_ratio == 1.0
    assert tolerance.max_atol is not None
    assert tolerance.max_rtol is not None
