"""The limit takes FLOPs from problem.toml, else from the counter, and never counts what cannot be counted."""

from __future__ import annotations

import pytest

from swarm.judge.limit import limit_of
from swarm.problem import Problem, problem_from_files
from swarm.sol import Peaks
from tests.problem_files import problem_files

PEAKS = Peaks("some-cpu", 10.0, {"float32": 100.0, "bfloat16": 200.0}, "made up")
COUNTED = 4e9
"""20 ms at bfloat16's peak: far above what the bytes take."""


def problem(settings: str = "") -> Problem:
    return problem_from_files({**problem_files(), "problem.toml": settings.encode()}, "scale_rows")


def never() -> float:
    raise AssertionError("counted although it need not or cannot be")


def test_counted_flops_bound_the_time_at_the_fastest_inputs_peak() -> None:
    one = problem()
    limit = limit_of(one, one.workloads[0], PEAKS, lambda: COUNTED)
    assert limit.flops == COUNTED
    assert limit.t_sol_us == pytest.approx(COUNTED / 200e3)


def test_given_flops_are_not_counted() -> None:
    one = problem('[sol]\nflops = "1000 * rows"')
    limit = limit_of(one, one.workloads[0], PEAKS, never)
    assert limit.flops == 1000 * one.workloads[0].axes["rows"]


def test_an_irregular_problem_is_bound_by_its_bytes() -> None:
    one = problem("irregular = true")
    limit = limit_of(one, one.workloads[0], PEAKS, never)
    assert limit.flops is None
    assert limit.t_sol_us == pytest.approx(limit.bytes / 10e3)


def test_inputs_without_a_peak_leave_the_bytes() -> None:
    one = problem()
    peaks = Peaks("some-cpu", 10.0, {"float64": 100.0}, "made up")
    limit = limit_of(one, one.workloads[0], peaks, lambda: COUNTED)
    assert limit.flops is None
