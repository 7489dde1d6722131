"""Kernels without inline PTX give the reference's results, run on the CPU thread by thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.problem import Problem, load_problem
from swarm.solution import load_manifest, with_params
from tests.gpu import trees
from tests.gpu.emulated import matches

SMALL: dict[str, list[dict[str, int]]] = {
    "cross_entropy": [{"tokens": 2}],
    "int8_matvec": [{"out_features": 37, "in_features": 4096}],
    "layernorm": [{"tokens": 5}],
    "masked_softmax": [
        {"batch": 2, "query_len": 2, "key_len": 50},
        {"batch": 1, "query_len": 1, "key_len": 600},
    ],
    "rmsnorm_residual": [{"tokens": 3}],
    "rope": [{"tokens": 3}],
    "swiglu": [{"tokens": 2}],
    "gemv": [{"N": 10, "K": 4096}],
    "histogram": [{"n": 1}, {"n": 9000}],
    "reverse_rows": [{"rows": 2, "cols": 3001}],
    "softmax": [{"rows": 3, "cols": 1000}, {"rows": 2, "cols": 20_001}],
}
TREES: tuple[str, ...] = ("gemv/cuda_simple", "histogram/cuda_memset", "reverse_rows/cuda_large_smem")
TREES += ("softmax/cuda", "softmax/cuda_simple")


def small(problem: Problem) -> Problem:
    given = {w.uuid: w for w in problem.workloads}
    scalars = next(iter(given.values())).scalars
    return with_workloads(problem, SMALL[problem.name], scalars)


def check(problem: Problem, tree: dict[str, bytes], folder: Path) -> None:
    found = matches(small(problem), tree, folder)
    assert found
    for match in found:
        assert match.passed, match.reason


@pytest.mark.parametrize("corner", ["seed", "last"])
@pytest.mark.parametrize("name", sorted(path.name for path in (trees.ROOT / "problems").iterdir()))
def test_seed_computes_what_the_reference_does(name: str, corner: str, tmp_path: Path) -> None:
    problem = load_problem(trees.ROOT / "problems" / name)
    tree = problem.seeds["cuda"]
    if corner == "last":
        tree = with_params(tree, {knob: values[-1] for knob, values in load_manifest(tree).tune.items()})
    check(problem, tree, tmp_path)


@pytest.mark.parametrize("name", TREES)
def test_solution_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    check(trees.problem(name.partition("/")[0]), trees.solution(name), tmp_path)


def test_kernel_that_is_a_little_wrong_is_told_from_a_right_one(tmp_path: Path) -> None:
    tree = trees.solution("softmax/cuda_simple")
    source = tree["kernel.cu"].replace(b"/ sum;", b"/ (1.001f * sum);")
    assert source != tree["kernel.cu"]
    found = matches(small(trees.problem("softmax")), {**tree, "kernel.cu": source}, tmp_path)
    assert not any(match.passed for match in found)
