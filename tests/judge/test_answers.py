"""A sample never hides an answer that a judge would take, and tolerances are measured as a judge does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.definition import DType
from swarm.judge import check, elements
from swarm.judge.answers import SAMPLE, Output, Weakness, answers, need
from swarm.judge.slots import Shape
from swarm.problem import Limits

LIMITS = Limits(1e-3, 1e-3, 0.99, None, allow_negative_inf=False)
RATIOS = st.sampled_from([1.0, 0.99, 0.9, 0.5])


def output(count: int, ratio: float, seed: int = 0) -> Output:
    dice = torch.Generator().manual_seed(seed)
    right = torch.randn(count, generator=dice)
    limits = replace(LIMITS, required_matched_ratio=ratio)
    return Output(Shape("y", DType.FLOAT32, (count,)), right, limits, dice)


@settings(deadline=None, max_examples=60)
@given(
    ratio=RATIOS,
    count=st.sampled_from([1000, SAMPLE, 3 * SAMPLE]),
    share=st.floats(0, 2),
    seed=st.integers(0, 99),
)
def test_what_a_sample_settles_fails_as_a_whole(ratio: float, count: int, share: float, seed: int) -> None:
    """`share` is how many of the elements that may be wrong are; around 1 only the whole can tell."""
    one = output(count, ratio, seed)
    wrong = round(min(1.0, share * (1 - ratio)) * count)
    got = one.right.clone()
    got[torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:wrong]] += 1
    passes = one.trial(got.__getitem__) is not None
    assert passes == (1 - wrong / count >= ratio)
    if passes:
        assert not one.fails(got.__getitem__)
    if share > 1.2 and wrong > 0.05 * count:
        assert one.fails(got.__getitem__)


@settings(deadline=None, max_examples=60)
@given(ratio=RATIOS, seed=st.integers(0, 999), noise=st.floats(1e-6, 1.0))
def test_need_is_the_smallest_multiple_of_the_tolerance_that_a_judge_takes(
    ratio: float, seed: int, noise: float
) -> None:
    dice = torch.Generator().manual_seed(seed)
    right = torch.randn(500, generator=dice, dtype=torch.float64)
    got = right + noise * torch.randn(500, generator=dice, dtype=torch.float64)
    limits = replace(LIMITS, required_matched_ratio=ratio)
    needed = need(got, right, ratio, limits)

    def passes(scale: float) -> bool:
        scaled = replace(limits, atol=scale * limits.atol, rtol=scale * limits.rtol)
        return check.compare("y", got, right, DType.FLOAT64, (500,), scaled).passed

    assert passes(needed * 1.001)
    assert not passes(needed * 0.999)


def test_need_counts_what_is_not_finite_as_a_judge_does() -> None:
    right = torch.tensor([-math.inf, 1.0])
    assert need(torch.tensor([-math.inf, 1.0]), right, 1.0, LIMITS) == 0
    assert need(torch.tensor([0.0, 1.0]), right, 1.0, LIMITS) == math.inf
    assert need(torch.tensor([-math.inf, math.nan]), right, 1.0, LIMITS) == math.inf
    assert need(torch.tensor([2, 3]), torch.tensor([2, 4]), 1.0, replace(LIMITS, atol=0, rtol=0)) == math.inf


@pytest.mark.parametrize("dtype", list(DType))
def test_numbers_are_stored_as_they_were_read(dtype: DType) -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(8)
    values = elements.comparable(codes.view(elements.stored_dtype(dtype)), dtype)
    values = values[torch.isfinite(values)] if values.is_floating_point() else values
    again = elements.comparable(elements.stored(values, dtype), dtype)
    assert torch.equal(values, again)


def test_what_a_dtype_cannot_hold_is_stored_as_the_nearest_it_can() -> None:
    def through(number: float, dtype: DType) -> float:
        stored = elements.stored(torch.tensor([number, number]), dtype)
        return float(elements.comparable(stored, dtype)[0])

    assert through(1000.0, DType.FLOAT8_E4M3FN) == 448
    assert through(-1000.0, DType.INT8) == -128
    assert through(2.6, DType.INT32) == 3
    assert through(7.9, DType.FLOAT4_E2M1) == 6
    assert through(-0.6, DType.FLOAT4_E2M1FN_X2) == -0.5


def test_an_input_is_copied_whatever_its_size() -> None:
    one = Output(Shape("y", DType.FLOAT32, (2, 3)), torch.zeros(6), LIMITS, torch.Generator())
    inputs = {
        "same": ((2, 3), [0, 1, 2, 3, 4, 5]),
        "bias": ((3,), [0, 1, 2, 0, 1, 2]),
        "wide": ((2, 4), [0, 1, 2, 4, 5, 6]),
        "table": ((5, 2), [0, 1, 2, 3, 4, 5]),
    }
    given_ = [
        (Shape(name, DType.FLOAT32, dims), torch.arange(math.prod(dims)).float())
        for name, (dims, _) in inputs.items()
    ]
    copies = {
        about: answer(torch.arange(6)).tolist()
        for weakness, about, answer in answers(one, None, given_)
        if weakness is Weakness.COPY
    }
    assert copies == {f"y from {name}": wanted for name, (_, wanted) in inputs.items()}


def test_an_output_in_pairs_of_four_bits_gets_every_answer() -> None:
    """NVFP4: the right one passes and rough ones fail, though no tensor has such elements."""
    right = elements.comparable(torch.arange(256, dtype=torch.uint8), DType.FLOAT4_E2M1)
    strict = replace(LIMITS, required_matched_ratio=1.0)
    one = Output(Shape("y", DType.FLOAT4_E2M1, (32, 16)), right, strict, torch.Generator())
    assert one.trial(right.__getitem__) is not None
    tried = {weakness for weakness, _, answer in answers(one, right.roll(1), []) if one.fails(answer)}
    assert tried == {
        Weakness.ZEROS, Weakness.ONES, Weakness.MEAN, Weakness.MEDIAN, Weakness.ROW_MEAN,
        Weakness.HALF_WRITTEN, Weakness.STALE,
    }  # fmt: skip
