"""Kernels without inline PTX give the reference's results, run on the CPU thread by thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.problem import Problem
from tests.gpu import trees
from tests.gpu.emulated import matches

SMALL: dict[str, list[dict[str, int]]] = {
    "gemv": [{"N": 10, "K": 4096}],
    "histogram": [{"n": 1}, {"n": 9000}],
    "reverse_rows": [{"rows": 2, "cols": 3001}],
    "softmax": [{"rows": 3, "cols": 1000}, {"rows": 2, "cols": 20_001}],
}
TREES: tuple[str, ...] = ("gemv/cuda_simple", "histogram/cuda_memset", "reverse_rows/cuda_large_smem")
TREES += ("softmax/cuda", "softmax/cuda_simple")


def small(problem: Problem) -> Problem:
    return with_workloads(problem, SMALL[problem.name], problem.workloads[0].scalars)


@pytest.mark.parametrize("name", TREES)
def test_solution_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    found = matches(small(trees.problem(name.partition("/")[0])), trees.solution(name), tmp_path)
    assert found
    for match in found:
        assert match.passed, match.reason


def test_kernel_that_is_a_little_wrong_is_told_from_a_right_one(tmp_path: Path) -> None:
    tree = trees.solution("softmax/cuda_simple")
    source = tree["kernel.cu"].replace(b"/ sum;", b"/ (1.001f * sum);")
    assert source != tree["kernel.cu"]
    found = matches(small(trees.problem("softmax")), {**tree, "kernel.cu": source}, tmp_path)
    assert not any(match.passed for match in found)
