import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarm.definition import DType
from swarm.judge import elements
from swarm.judge.check import CHUNK, Match, compare, invalid_reference
from swarm.problem import Limits

LIMITS = Limits(
    atol=0.01, rtol=0.01, required_matched_ratio=1.0, max_error_cap=None, allow_negative_inf=False
)


def check(
    got: torch.Tensor, expected: torch.Tensor, limits: Limits = LIMITS, poison: int | None = None
) -> Match:
    dtype = DType(str(got.dtype).removeprefix("torch."))
    return compare("y", got.flatten(), expected.flatten(), dtype, tuple(got.shape), limits, poison)


def with_ratio(ratio: float, cap: float | None = None) -> Limits:
    return Limits(0.01, 0.01, ratio, cap, False)


def test_equal_values_match_with_no_error() -> None:
    x = torch.randn(5, 7)
    assert check(x, x) == Match("", 0.0, 0.0, 1.0)


def test_nothing_to_compare_is_a_match() -> None:
    assert check(torch.empty(0), torch.empty(0)).passed


def test_one_wrong_element_is_named_with_both_values() -> None:
    got = torch.ones(3, 4)
    got[1, 2] = 5.0
    match = check(got, torch.ones(3, 4))
    assert not match.passed
    assert "[1, 2]: expected 1, got 5" in match.reason
    assert match.matched_ratio == pytest.approx(11 / 12)
    assert match.max_abs_error == 4.0


def test_what_is_not_all_does_not_read_as_100_percent() -> None:
    got = torch.ones(3_000_000)
    got[7] = 5.0
    assert "99.99997 % of 3000000 elements match" in check(got, torch.ones(3_000_000)).reason


def test_an_error_in_a_later_chunk_is_found_at_its_place() -> None:
    got = torch.ones(3 * CHUNK + 5)
    got[2 * CHUNK + 3] = -1.0
    assert f"[{2 * CHUNK + 3}]" in check(got, torch.ones(len(got))).reason


def test_the_required_ratio_forgives_a_few_wrong_elements() -> None:
    got = torch.ones(100)
    got[7] = 2.0
    assert check(got, torch.ones(100), with_ratio(0.99)).passed
    got[8] = 2.0
    assert not check(got, torch.ones(100), with_ratio(0.99)).passed


def test_the_error_cap_holds_whatever_the_ratio() -> None:
    got = torch.ones(100)
    got[7] = 9.0
    assert not check(got, torch.ones(100), with_ratio(0.5, cap=1.0)).passed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_fails_even_where_both_agree(value: float) -> None:
    got = torch.ones(4)
    got[2] = value
    assert "[2]" in check(got, torch.ones(4)).reason
    assert not check(got, got.clone()).passed


def test_nan_is_named_before_inf() -> None:
    got = torch.tensor([math.inf, math.nan])
    assert "nan at [1]" in check(got, torch.ones(2)).reason


def test_negative_infinity_matches_itself_only_where_that_is_allowed() -> None:
    allowing = Limits(0.01, 0.01, 1.0, None, True)
    got = torch.tensor([1.0, -math.inf])
    assert check(got, got.clone(), allowing).passed
    assert not check(torch.tensor([1.0, 2.0]), got, allowing).passed
    assert not check(torch.tensor([1.0, math.inf]), got, allowing).passed


def test_all_zeros_fail_although_each_is_within_tolerance() -> None:
    match = check(torch.zeros(64), torch.full((64,), 0.005))
    assert "all 64 elements are zero" in match.reason


def test_zeros_are_right_where_zeros_are_expected() -> None:
    assert check(torch.zeros(64), torch.zeros(64)).passed


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64])
def test_elements_that_still_hold_the_poison_are_counted(dtype: DType) -> None:
    poison = elements.poison(dtype, random.Random(1))
    got = torch.ones(10, dtype=elements.torch_dtype(dtype))
    elements.as_bits(got)[6:].fill_(poison)
    match = check(got, torch.ones(10, dtype=elements.comparable_dtype(dtype)), poison=poison)
    assert "4 of 10 elements were never written, the first at [6]" in match.reason


def test_large_integers_are_compared_exactly() -> None:
    exact = Limits(0.0, 0.0, 1.0, None, False)
    big = torch.tensor([2**60, 7])
    assert check(big, big.clone(), exact).passed
    assert not check(torch.tensor([2**60, 8]), big, exact).passed


def test_packed_float4_is_compared_by_value() -> None:
    packed = torch.tensor([0x21, 0xF0], dtype=torch.uint8)
    expected = torch.tensor([0.5, 1.0, 0.0, -6.0])
    limits = Limits(0.0, 0.0, 1.0, None, False)
    assert compare("y", packed, expected, DType.FLOAT4_E2M1, (4,), limits).passed
    expected[1] = 1.5
    assert not compare("y", packed, expected, DType.FLOAT4_E2M1, (4,), limits).passed


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reference_that_is_not_finite_is_no_answer(value: float) -> None:
    assert "reference returned" in invalid_reference("y", torch.tensor([1.0, value, 2.0]), LIMITS)
    assert invalid_reference("y", torch.tensor([1.0, 2.0]), LIMITS) == ""


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50),
    st.integers(0, 49),
    st.floats(-2, 2, width=32),
    st.sampled_from([0.5, 0.9, 1.0]),
)
def test_the_verdict_is_the_rule_applied_element_by_element(
    values: list[float], at: int, change: float, ratio: float
) -> None:
    expected = torch.tensor(values)
    got = expected.clone()
    got[at % len(values)] += change
    error = (got - expected).abs()
    wrong = int((error > 0.01 + 0.01 * expected.abs()).sum())
    is_zero = bool((got == 0).all()) and bool((expected != 0).any())
    passes = 1 - wrong / len(values) >= ratio and not is_zero
    assert check(got, expected, with_ratio(ratio)).passed == passes
