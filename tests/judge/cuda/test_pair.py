"""Two clocks must agree on who is faster, where one alone may favour a grid."""

from __future__ import annotations

import math

import pytest

from swarm.judge.cuda.pair import contradiction


@pytest.mark.parametrize(
    ("found", "again", "contradicts"),
    [
        (1.05, 1.02, False),
        (1.05, 1.001, False),
        (1.05, 0.999, True),
        (0.95, 1.001, True),
        (0.95, 0.97, False),
        (1.01, 0.99, False),
        (0.99, 1.01, False),
    ],
)
def test_a_gain_that_the_other_clock_does_not_see_is_told(
    found: float, again: float, contradicts: bool
) -> None:
    told = contradiction(math.log(found), math.log(again), 0.02)
    assert bool(told) is contradicts
    if contradicts:
        assert f"{found:.4f} by CUPTI but {again:.4f} by events" in told
