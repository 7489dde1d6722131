"""The trees that the GPU tests run keep to the protocol, and their device code compiles without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.judge.build import Built, build
from swarm.languages.protocol import Kind
from swarm.protocol import load_protocol
from swarm.solution import load_manifest, validate_tree
from tests.gpu import trees

DEVICE_CODE = [name for name in trees.SOLUTIONS if name.partition("/")[2].startswith("cuda")]
DEVICE_CODE = [name for name in DEVICE_CODE if not name.endswith(("/cuda_cpp", "/cuda_torch"))]


@pytest.mark.parametrize("name", trees.SOLUTIONS)
def test_solution_keeps_to_the_protocol(name: str) -> None:
    validate_tree(trees.solution(name), load_protocol(trees.coordination(), "COORDINATION.md"))
    trees.problem(name.partition("/")[0])


def test_five_languages_have_a_solution_that_does_real_work() -> None:
    languages = {str(load_manifest(trees.solution(name)).language) for name in trees.SOLUTIONS}
    assert languages == {"cuda", "cuda_cpp", "triton", "cute_dsl", "pytorch"}


@pytest.mark.parametrize("name", DEVICE_CODE)
def test_plan_is_sound_and_its_kernels_compile_without_spills(name: str, tmp_path: Path) -> None:
    problem = trees.problem(name.partition("/")[0])
    made = build(trees.solution(name), trees.frozen(problem), trees.ABSENT_H200, tmp_path)
    assert isinstance(made, Built), f"{made.reason}\n{made.log}"
    assert made.artifact.kind is Kind.PLAN
    assert made.artifact.kernels
    for kernel in made.artifact.kernels:
        assert kernel.stack_bytes == 0, f"{kernel.name} keeps {kernel.stack_bytes} bytes a thread in memory"
