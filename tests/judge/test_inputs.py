import json
import math
import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarm.definition import DType, TensorSpec
from swarm.errors import BadInput
from swarm.judge import elements
from swarm.judge.inputs import Draw, Inputs, Spread, make_pool
from swarm.problem import Problem, problem_from_files
from swarm.settings import Distribution, DistributionKind

SHAPE = (8, 16)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def values(
    name: str, dtype: DType = DType.FLOAT32, shape: tuple[int, ...] = SHAPE, **more: object
) -> torch.Tensor:
    spec = TensorSpec(shape=tuple(map(str, shape)), dtype=dtype, description=more.pop("description", None))
    return make_pool(name, spec, shape, generator(), **more).values  # type: ignore[arg-type]


def one_input(
    dtype: str = "float32",
    name: str = "x",
    settings: bytes = b"",
    tensors: dict[str, bytes] | None = None,
    **descriptor: object,
) -> Problem:
    files = {
        "definition.json": json.dumps(
            {
                "name": "one",
                "axes": {"n": {"type": "var"}},
                "inputs": {name: {"shape": ["n"], "dtype": dtype}},
                "outputs": {"y": {"shape": ["n"], "dtype": dtype}},
                "reference": f"def run({name}):\n    return {name}\n",
            }
        ).encode(),
        "workload.jsonl": json.dumps(
            {"uuid": "w", "axes": {"n": 1000}, "inputs": {name: descriptor or {"type": "random"}}}
        ).encode(),
        "problem.toml": settings,
    }
    return problem_from_files(files | (tensors or {}), "one")


def source(problem: Problem, seed: str = "s", files: dict[str, bytes] | None = None) -> Inputs:
    return Inputs(problem.definition, problem.workloads[0], seed, files=files)


def written(inputs: Inputs, draw: Draw, dtype: DType = DType.FLOAT32) -> torch.Tensor:
    count = elements.stored_shape((1000,), dtype)[0]
    into = torch.empty(count, dtype=elements.stored_dtype(dtype))
    inputs.write(draw, 0, into)
    return into


def test_every_call_has_other_contents() -> None:
    inputs = source(one_input())
    seen = {written(inputs, inputs.draw()).numpy().tobytes() for _ in range(50)}
    assert len(seen) == 50


@pytest.mark.parametrize("dtype", [DType.FLOAT64, DType.FLOAT32, DType.BFLOAT16], ids=str)
def test_no_cache_line_of_a_slice_is_the_same_in_two_calls(dtype: DType) -> None:
    inputs = source(one_input(dtype))
    draw = replace(inputs.draw(), spread=Spread.PLAIN)
    calls = [replace(draw, number=number) for number in (1, 2)]
    one, other = (elements.as_bits(written(inputs, call, dtype)) for call in calls)
    line = 64 // one.element_size()
    for begin in range(0, len(one) - line, line):
        assert not torch.equal(one[begin : begin + line], other[begin : begin + line])
    assert float((one == other).float().mean()) > 0.7, "and most of it costs one pass over memory"


def test_rows_that_are_whole_are_new_in_every_call() -> None:
    inputs = source(one_input(name="attn_weights"))
    draw = inputs.draw()
    one, other = (written(inputs, replace(draw, number=number)) for number in (1, 2))
    assert float((one == other).float().mean()) < 0.1
    assert float(one.double().sum()) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.FLOAT64], ids=str)
def test_new_elements_are_of_their_dtypes_range(dtype: DType) -> None:
    inputs = source(one_input(dtype))
    draws = [inputs.draw() for _ in range(5)]
    for draw in draws:
        found = written(inputs, draw, dtype)
        assert torch.equal(elements.as_bits(found), elements.as_bits(written(inputs, draw, dtype)))
        if dtype is DType.BOOL:
            assert set(found.tolist()) <= {0, 1}
        elif not dtype.is_float:
            assert int(found.min()) >= -1024 and int(found.max()) < 1024
        elif not dtype.is_packed:
            assert bool(found.float().isfinite().all())


def test_a_draw_can_be_written_again() -> None:
    inputs = source(one_input())
    draws = [inputs.draw() for _ in range(12)]
    first = [written(inputs, draw) for draw in draws]
    assert all(torch.equal(one, written(inputs, draw)) for one, draw in zip(first, draws, strict=True))


def test_the_seed_decides_everything() -> None:
    problem = one_input()
    same = [written(i, i.draw()) for i in (source(problem), source(problem))]
    other = source(problem, "another")
    assert torch.equal(*same)
    assert not torch.equal(same[0], written(other, other.draw()))


def test_five_calls_in_a_row_hold_every_spread() -> None:
    inputs = source(one_input())
    for _ in range(4):
        assert {inputs.draw().spread for _ in range(5)} == set(Spread)


def test_each_spread_does_what_it_says() -> None:
    inputs = source(one_input())
    draws = {draw.spread: draw for draw in (inputs.draw() for _ in range(5))}
    assert written(inputs, draws[Spread.OUTLIERS]).abs().max() > 6
    zeros = int((written(inputs, draws[Spread.STRUCTURED]) == 0).sum())
    assert zeros == 0 or zeros >= 1  # a run at the very end may be empty
    assert draws[Spread.PLAIN].factor == pytest.approx(1, abs=0.11)
    assert 1 / 4 <= draws[Spread.SCALED].factor <= 4


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.FLOAT64], ids=str)
def test_every_dtype_has_values_in_its_range(dtype: DType) -> None:
    found = values("x", dtype)
    assert found.dtype == elements.stored_dtype(dtype)
    if dtype is DType.BOOL:
        assert set(found.tolist()) == {0, 1}
    elif dtype is DType.INT8:
        assert -128 <= int(found.min()) < -100 and 100 < int(found.max()) <= 127
    elif not dtype.is_float:
        assert int(found.min()) >= -1024 and int(found.max()) < 1024
    elif dtype.bits == 8:
        assert float(found.float().abs().max()) <= 2
    elif not dtype.is_packed:
        assert abs(float(found.float().std()) - 1) < 0.1


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("input_layernorm_weight", 1, 1),
        ("norm_bias", 0, 0),
        ("cos", -1, 1),
        ("rope_sin", -1, 1),
        ("rstd", 0.1, 10),
        ("A", -1, -0.001),
        ("A_log", -5, -1),
        ("g", -5, 0),
        ("attn_weights", 0, 1),
        ("x_mask", 0, 1),
    ],
)
def test_names_decide_the_range(name: str, low: float, high: float) -> None:
    found = values(name)
    assert float(found.min()) >= low and float(found.max()) <= high


def test_a_softmax_input_keeps_its_rows_whole() -> None:
    spec = TensorSpec(shape=("8", "16"), dtype=DType.FLOAT32)
    pool = make_pool("attention_weights", spec, SHAPE, generator())
    assert pool.step == 16
    assert torch.allclose(pool.values[:128].view(8, 16).sum(-1), torch.ones(8))


def test_a_causal_mask_is_zero_below_and_least_above() -> None:
    mask = values("attention_mask", shape=(4, 4)).view(4, 4)
    assert float(mask.tril().abs().max()) == 0
    assert float(mask[0, 1]) == torch.finfo(torch.float32).min


def test_a_weight_matrix_is_scaled_by_its_fan_in() -> None:
    assert float(values("gate_proj", shape=(64, 400)).std()) == pytest.approx(1 / math.sqrt(400), rel=0.1)


def test_weights_of_norms_are_ones_only_in_plain_draws() -> None:
    spec = TensorSpec(shape=("16",), dtype=DType.FLOAT32)
    pool = make_pool("norm_weight", spec, (16,), generator())
    assert pool.varied is not None
    assert float(pool.varied.std()) > 0.1


@pytest.mark.parametrize(
    ("kind", "arguments", "low", "high"),
    [
        (DistributionKind.UNIFORM, (2.0, 3.0), 2, 3),
        (DistributionKind.INT, (0.0, 7.0), 0, 6),
        (DistributionKind.ONES, (), 1, 1),
        (DistributionKind.ZEROS, (), 0, 0),
        (DistributionKind.BERNOULLI, (0.5,), 0, 1),
        (DistributionKind.NORMAL, (100.0, 1.0), 90, 110),
    ],
    ids=lambda value: str(value),
)
def test_problem_toml_overrules_the_name(
    kind: DistributionKind, arguments: tuple[float, ...], low: float, high: float
) -> None:
    found = values("norm_bias", hint=Distribution(kind, arguments))
    assert low <= float(found.min()) and float(found.max()) <= high


def test_a_tensor_comes_from_a_file() -> None:
    data = torch.arange(1000, dtype=torch.float32)
    header = json.dumps({"t": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
    file = struct.pack("<Q", len(header)) + header + data.numpy().tobytes()
    problem = one_input(
        tensors={"t.safetensors": file}, type="safetensors", path="t.safetensors", tensor_key="t"
    )
    inputs = source(problem, files={"t.safetensors": file})
    assert torch.equal(written(inputs, inputs.draw()), data)
    with pytest.raises(BadInput, match="no file"):
        source(problem)


@given(st.integers(0, 2**32))
def test_slices_stay_inside_their_pools(seed: int) -> None:
    inputs = source(PROBLEM, str(seed))
    pool = inputs.pools[0]
    assert pool is not None
    for _ in range(8):
        start = inputs.draw().starts[0]
        assert start >= 0 and start + pool.count <= pool.values.numel()


PROBLEM = one_input()
