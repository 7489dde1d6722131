"""T_SOL of every workload is what bytes and FLOPs come to by hand; each problem says where it is from."""

from __future__ import annotations

import pytest

from swarm.definition import DType
from swarm.judge.cuda.sitting import private_bytes, shared_bytes
from swarm.judge.reference import References
from swarm.problem import Problem
from tests.suite import table
from tests.suite.shipped import NAMES, ROOT, seeded, shipped, written

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
    workloads = (*problem.workloads, *problem.cpu_workloads)
    for workload, limit in zip(workloads, table.limits(name, references), strict=True):
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


def test_the_documents_table_is_that_of_the_problems_that_ship(references: References) -> None:
    assert table.written() == table.table(references), "type: python -m tests.suite.table"


def test_at_least_36_problems_ship_each_with_a_seed_for_a_gpu_counted_and_emulated() -> None:
    assert len(NAMES) >= 36
    assert set(NAMES) == written("COUNTS").keys() == written("SMALL").keys() == set(seeded("cuda"))
    assert f"\n{len(NAMES)} problems from public models" in (ROOT / "README.md").read_text()


def test_the_suite_spans_what_models_spend_their_time_on() -> None:
    """The three problems of the published experiment, the bottlenecks beside them, six backward passes."""
    experiment = {"gqa_paged_prefill", "nvfp4_moe", "bf16_matmul"}
    forward = {
        "rmsnorm_residual", "layernorm", "groupnorm_silu", "qk_norm", "rope", "rope_multi_axis",
        "masked_softmax", "softcapped_softmax", "swiglu", "geglu", "cross_entropy", "embedding_gather",
        "moe_topk_routing", "moe_permute", "grouped_gemm", "gemm_bias_gelu", "gemm_residual", "decode_gemv",
        "int8_linear", "fp8_linear", "fp8_block_linear", "int4_linear", "fp8_quantise", "nvfp4_quantise",
        "gqa_paged_decode", "ragged_prefill", "sliding_window_attention", "mla_decode", "kv_cache_update",
        "causal_conv1d", "mamba2_scan", "gated_delta_rule", "conv2d_residual", "top_p_sampling",
    }  # fmt: skip
    backward = {"rmsnorm", "swiglu", "rope", "attention", "cross_entropy", "layernorm"}
    assert experiment | forward | {f"{name}_backward" for name in backward} <= set(NAMES)
