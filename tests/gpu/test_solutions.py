"""Kernels of every language, and plans that use everything a plan has, pass on a GPU."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.judge.judge import Judge
from swarm.verdict import Comparison, Outcome, Status, Verdict
from tests.gpu import trees

pytestmark = pytest.mark.gpu

BUILD_S = 300
"""A torch extension takes about a minute on a quiet machine."""


def needs(name: str) -> None:
    module = {"cute_dsl": "cutlass", "triton": "triton"}.get(name.partition("/")[2])
    if module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("name", trees.SOLUTIONS)
def test_solution_passes(name: str, judge: Judge) -> None:
    needs(name)
    problem = trees.problem(name.partition("/")[0])
    work = trees.job(problem, trees.solution(name), name=name, compile_timeout_s=BUILD_S)
    verdict = judge.judge(work)
    assert isinstance(verdict, Verdict)
    times = {item.uuid: item.time_us for item in verdict.workloads}
    print(name, f"built and measured in {verdict.total_s:.2f} s", times)
    assert verdict.status is Status.PASSED, f"{verdict.reason}\n{verdict.log}"
    assert len(times) == len(problem.workloads)


@pytest.mark.parametrize("problem", ["gemm", "gemv", "softmax"])
def test_kernel_that_uses_the_hardware_beats_the_simple_one(problem: str, judge: Judge) -> None:
    fast, simple = trees.solution(f"{problem}/cuda"), trees.solution(f"{problem}/cuda_simple")
    comparison = judge.judge(trees.job(trees.problem(problem), fast, simple, name=f"{problem}-fast"))
    assert isinstance(comparison, Comparison)
    print(problem, comparison.reason, {item.uuid: item.ratio for item in comparison.workloads})
    assert comparison.outcome is Outcome.FASTER, comparison.reason


@pytest.mark.parametrize("language", ["cuda", "cuda_cpp", "triton", "pytorch"])
def test_kernel_is_not_faster_than_itself(language: str, judge: Judge) -> None:
    tree = trees.solution(f"rmsnorm/{language}")
    problem = with_workloads(trees.problem("rmsnorm"), [{"batch_size": 64}, {"batch_size": 2048}])
    comparison = judge.judge(trees.job(problem, tree, tree, name=f"same-{language}"))
    assert isinstance(comparison, Comparison)
    print(language, comparison.reason)
    assert comparison.outcome is not Outcome.FASTER, comparison.reason
