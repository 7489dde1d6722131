"""Without a GPU: its honest candidates keep to the rules, device code compiles, and some of it is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_jobs import with_workloads
from swarm.judge.build import Built, Frozen, build
from swarm.problem import Problem, load_problem
from swarm.protocol import load_protocol
from swarm.solution import validate_tree
from tests.corpus.cases import Case, cases
from tests.corpus.judged import PROBLEMS
from tests.gpu import trees
from tests.gpu.emulated import matches

PROTOCOL = load_protocol(trees.coordination(), "COORDINATION.md")
CASES = {case.name: case for case in cases("honest", "gpu")}
SMALL = {
    "rows": [{"rows": 5}],
    "total": [{"rows": 5}, {"rows": 150}],
    "ragged": [{"rows": 7}],
    "gather": [{"count": 50}],
    "product": [{"rows": 18}],
    "scan": [{"rows": 4}],
    "order": [{"rows": 3}, {"rows": 66}],
}
EMULATED = (
    "output_is_scratch",
    "last_block_combines",
    "counter_of_the_module",
    "blocks_wait_for_their_turn",
    "longest_rows_first",
    "whole_table_first",
    "inner_dimension_split",
    "running_sums_of_running_sums",
    "exchanges_in_a_large_shared_memory",
    "table_of_constants",
)


def problem_of(case: Case) -> Problem:
    return load_problem(PROBLEMS / case.problem)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_candidate_keeps_to_the_rules(case: Case) -> None:
    validate_tree(case.files, PROTOCOL)


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.language == "cuda"], ids=lambda c: c.name
)
def test_plan_is_sound_and_its_kernels_compile(case: Case, tmp_path: Path) -> None:
    made = build(case.files, Frozen(problem_of(case), PROTOCOL), trees.ABSENT_H200, tmp_path)
    assert isinstance(made, Built), f"{made.reason}\n{made.log}"


@pytest.mark.parametrize("name", EMULATED)
def test_kernel_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    case = CASES[f"cuda.{name}"]
    found = matches(with_workloads(problem_of(case), SMALL[case.problem]), case.files, tmp_path)
    assert found
    for match in found:
        assert match.passed, match.reason
