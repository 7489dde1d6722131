"""T_SOL of every workload is what bytes and FLOPs come to by hand; each problem says where it is from."""

from __future__ import annotations

import pytest

from swarm.definition import DType
from swarm.judge.cuda.sitting import private_bytes, shared_bytes
from swarm.judge.limit import limit_of
from swarm.judge.reference import References, input_specs
from swarm.peaks_table import BY_MODEL
from swarm.problem import Problem
from tests.suite.shipped import NAMES, shipped, written

H200 = BY_MODEL["nvidia-h200"].peaks("nvidia-h200")
BYTES_PER_US = 4.8e6
BF16_PER_US, TF32_PER_US, HALVES_PER_US = 989.4e6, 494.7e6, 1978.9e6
FLOPS_PER_US = {
    DType.FLOAT32: TF32_PER_US,
    DType.BFLOAT16: BF16_PER_US,
    DType.FLOAT16: BF16_PER_US,
    DType.INT8: HALVES_PER_US,
    DType.FLOAT8_E4M3FN: HALVES_PER_US,
    DType.FLOAT8_E5M2: HALVES_PER_US,
    DType.FLOAT4_E2M1: HALVES_PER_US,
    DType.FLOAT4_E2M1FN_X2: HALVES_PER_US,
}
"""Of an H200 by its data sheet, dense. It has no units for float4, whose values fit float8."""
MEMORY_BYTES = 141e9


def fastest(problem: Problem) -> float:
    """Return the highest rate among those of the tensor inputs' dtypes."""
    return max(FLOPS_PER_US.get(spec.dtype, 0.0) for spec in problem.definition.inputs.values() if spec.shape)


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_is_what_a_count_by_hand_gives(name: str, references: References) -> None:
    problem, count = shipped(name), written("COUNTS")[name]
    reference = references.answering(name, problem)
    for workload in (*problem.workloads, *problem.cpu_workloads):
        specs = input_specs(problem.definition, workload)
        limit = limit_of(problem, workload, H200, lambda specs=specs: sum(reference.flops(specs).values()))
        flops, moved = count({**workload.scalars, **problem.definition.resolve(workload)})
        t_sol_us = max(moved / BYTES_PER_US, (flops or 0) / (fastest(problem) or BF16_PER_US))
        found = (limit.flops or 0, limit.bytes, limit.t_sol_us)
        assert found == pytest.approx((flops or 0, moved, t_sol_us), rel=0.01), workload.axes
        assert limit.t_sol_us > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_fits_an_h200(name: str) -> None:
    problem = shipped(name)
    for workload in problem.workloads:
        assert shared_bytes(problem, workload) + private_bytes(problem, workload) < 0.85 * MEMORY_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_says_where_it_is_from_and_what_it_is_like(name: str) -> None:
    problem = shipped(name)
    settings = problem.settings
    assert settings.source and len(settings.source) > 10
    assert settings.family and settings.op_class
    assert settings.licence == "Apache-2.0"
    assert problem.definition.description
    assert problem.definition.name == name


@pytest.mark.parametrize("name", NAMES)
def test_where_values_or_masks_decide_the_work_an_expression_says_how_much(name: str) -> None:
    """FLOPs, or bytes alone for work without any."""
    settings = shipped(name).settings
    assert settings.sol.flops or settings.sol.bytes or not settings.irregular


def test_every_problem_is_counted_and_emulated() -> None:
    assert set(NAMES) <= written("COUNTS").keys() & written("SMALL").keys()
