"""The problems that ship are well formed, and their seeds for a CPU leave something to find."""

from __future__ import annotations

import math

import pytest

from swarm.problem import Problem
from swarm.protocol import load_protocol
from swarm.solution import Manifest, load_manifest, validate_tree
from tests.suite.shipped import NAMES, ON_A_CPU, ROOT, SEVEN, seeded, shipped


@pytest.fixture
def manifest(name: str) -> Manifest:
    return load_manifest(shipped(name).seeds["cpp"])


def sizes(problem: Problem) -> list[float]:
    return [problem.sol_bytes(workload) for workload in problem.workloads]


def test_seven_problems_have_all_that_a_swarm_needs_with_and_without_a_gpu() -> None:
    assert set(SEVEN) <= set(seeded("cpp")) & set(seeded("cuda")) & set(seeded("triton")) & set(ON_A_CPU)


@pytest.mark.parametrize("name", seeded("cpp"))
def test_seed_keeps_to_the_protocol(name: str) -> None:
    protocol = load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md")
    validate_tree(shipped(name).seeds["cpp"], protocol)


@pytest.mark.parametrize("name", seeded("cpp"))
def test_space_is_large_enough_to_search_and_starts_at_the_seed(manifest: Manifest) -> None:
    assert 50 <= math.prod(map(len, manifest.tune.values())) <= 500
    assert manifest.params.keys() == manifest.tune.keys()
    for knob, value in manifest.params.items():
        assert value in manifest.tune[knob]


@pytest.mark.parametrize("name", seeded("cpp"))
def test_seed_says_what_every_knob_does(name: str, manifest: Manifest) -> None:
    comment = shipped(name).seeds["cpp"]["kernel.cpp"].decode().partition("#include")[0]
    for knob in manifest.params:
        assert f"// {knob} " in comment


@pytest.mark.parametrize("name", ON_A_CPU)
def test_cpu_workloads_are_few_and_small(name: str) -> None:
    problem = shipped(name)
    assert (3 if name in SEVEN else 2) <= len(problem.cpu_workloads) <= 4
    for workload in problem.cpu_workloads:
        assert 2**19 <= problem.sol_bytes(workload) <= 2**24


@pytest.mark.parametrize("name", NAMES)
def test_gpu_workloads_cover_small_and_large(name: str) -> None:
    found = sizes(shipped(name))
    assert 4 <= len(found) <= (8 if name in SEVEN else 16)
    assert max(found) > (10 if name in SEVEN else 1) * min(found)


@pytest.mark.parametrize("name", NAMES)
def test_tolerance_is_the_problems_own(name: str) -> None:
    tolerance = shipped(name).settings.tolerance
    assert tolerance.max_atol is not None
    assert tolerance.max_rtol is not None
    assert tolerance.required_matched_ratio == 1.0 or name not in SEVEN
