from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.definition import DType
from swarm.errors import BadInput
from swarm.sol import Peaks, share_of_limit, sol_score, t_sol_us

H200 = Peaks("h200", 4800.0, {"bfloat16": 989_000.0, "float32": 67_000.0}, "data sheet")
TIMES = st.floats(1e-3, 1e6)


def test_the_limit_is_the_slower_of_bytes_and_flops() -> None:
    assert t_sol_us(1e3, 4.8e9, H200, DType.BFLOAT16) == pytest.approx(1000.0)
    assert t_sol_us(989e12, 1.0, H200, DType.BFLOAT16) == pytest.approx(1e6)
    assert t_sol_us(67e12, 1.0, H200, DType.FLOAT32) == pytest.approx(1e6)


def test_without_a_count_only_bytes_bound() -> None:
    assert t_sol_us(None, 4.8e9, H200, DType.INT8) == pytest.approx(1000.0)


def test_a_type_without_a_peak_is_named() -> None:
    with pytest.raises(
        BadInput, match="peaks of h200: no peak for int8; add it to the table, or calibrate again"
    ):
        t_sol_us(1.0, 1.0, H200, DType.INT8)


def test_a_peak_is_positive() -> None:
    with pytest.raises(ValueError, match="peak bandwidth of x is 0"):
        Peaks("x", 0.0, {}, "")


def test_the_score_is_half_at_the_baseline_and_one_at_the_limit() -> None:
    assert sol_score(10.0, 10.0, 2.0) == 0.5
    assert sol_score(2.0, 10.0, 2.0) == 1.0
    assert sol_score(1.0, 10.0, 2.0) == 1.0
    assert sol_score(None, 10.0, 2.0) == 0.0
    assert share_of_limit(4.0, 2.0) == 0.5


def test_the_score_is_undefined_where_the_baseline_is_at_the_limit() -> None:
    assert sol_score(1.0, 2.0, 2.0) is None
    assert sol_score(None, 1.0, 2.0) is None


@given(t_k=TIMES, faster=st.floats(0.01, 1.0), t_b=TIMES, t_sol=TIMES)
def test_faster_never_scores_less_and_the_score_is_a_share(
    t_k: float, faster: float, t_b: float, t_sol: float
) -> None:
    slow, fast = sol_score(t_k, t_b, t_sol), sol_score(t_k * faster, t_b, t_sol)
    if t_b <= t_sol:
        assert slow is None and fast is None
    else:
        assert slow is not None and fast is not None and 0 < slow <= fast <= 1
