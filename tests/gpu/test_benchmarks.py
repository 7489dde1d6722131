"""What the GPU benchmarks are made of can be built without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import table
from benchmarks.gpu_jobs import arithmetic, large, quantile, rounds, with_workloads
from benchmarks.variants import variant
from swarm.judge.build import Built, build
from tests.gpu import trees


def test_variant_is_new_to_every_compiler_and_the_same_solution(tmp_path: Path) -> None:
    tree = trees.solution("rmsnorm/cuda")
    first, second = variant(tree, 1), variant(tree, 2)
    assert len({tree["kernel.cu"], first["kernel.cu"], second["kernel.cu"]}) == 3
    assert first["solution.toml"] == tree["solution.toml"]


def test_other_sizes_are_workloads_of_the_same_problem() -> None:
    problem = with_workloads(trees.problem("rmsnorm"), [{"batch_size": 64}, {"batch_size": 6900}])
    assert [workload.axes["batch_size"] for workload in problem.workloads] == [64, 6900]


@pytest.mark.parametrize("what", ["rounds", "large"])
def test_kernel_of_a_benchmark_compiles(what: str, tmp_path: Path) -> None:
    problem, tree = (arithmetic(), rounds(1000)) if what == "rounds" else large(4096, 1 << 20)
    made = build(tree, trees.frozen(problem), trees.ABSENT_H200, tmp_path)
    assert isinstance(made, Built), f"{made.reason}\n{made.log}"


def test_quantile_lies_between_its_neighbours() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.975) == pytest.approx(9.75)


def test_table_says_which_targets_were_missed() -> None:
    text = table(
        [("latency", "2 s", "3 s", False), ("queue", "1500", "1600", True), ("x", "-", "y", None)], "h200"
    )
    lines = text.splitlines()
    assert lines[1].endswith("NO")
    assert lines[2].endswith("yes")
    assert lines[3].endswith("y")
