"""The limit takes FLOPs from problem.toml, else from the counter, and never counts what cannot be counted."""

from __future__ import annotations

import pytest

from swarm.judge.limit import Bound, Term, explain, limit_of
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


def test_given_expressions_are_explained_by_their_terms() -> None:
    one = problem('[sol]\nflops = "1000 * rows - (2 + rows) + 7"\nbytes = "max(rows + 1, 2)"\n')
    rows = one.workloads[0].axes["rows"]
    found = explain(one, one.workloads[0], PEAKS, lambda: pytest.fail("counted although it need not be"))
    assert found.flops == (
        Term("1000 * rows", 1000 * rows),
        Term("-2", -2),
        Term("-rows", -rows),
        Term("7", 7),
    )
    assert found.bytes == (Term("max(rows + 1, 2)", rows + 1),)
    assert (found.bound, found.dtype) == (Bound.FLOPS, "bfloat16")
    assert found.limit.t_sol_us == found.flops_us == pytest.approx((999 * rows + 5) / 200e3)
    assert found.bytes_us == pytest.approx((rows + 1) / 10e3)


def test_counted_flops_are_explained_by_operation_and_bytes_by_tensor() -> None:
    one = problem()
    found = explain(one, one.workloads[0], PEAKS, lambda: {"aten.mm": 3e9, "aten.bmm": 1e9})
    assert found.flops == (Term("aten.mm", 3e9), Term("aten.bmm", 1e9))
    assert [term.what for term in found.bytes] == [
        "read x: 4096 × 64 bfloat16",
        "read weight: 64 bfloat16",
        "write y: 4096 × 64 bfloat16",
    ]
    assert sum(term.amount for term in found.bytes) == found.limit.bytes
    assert found.limit == limit_of(one, one.workloads[0], PEAKS, lambda: COUNTED)
    assert found.remark == ""


@pytest.mark.parametrize(
    ("settings", "gflops", "remark"),
    [
        ("irregular = true", {"float32": 1.0, "bfloat16": 2.0}, "the problem is irregular"),
        ("", {"float64": 100.0}, "no input has a dtype with a known peak"),
        ("", {"bfloat16": 2.0}, "torch's counter finds none"),
    ],
)
def test_an_explanation_says_why_there_are_no_flops(
    settings: str, gflops: dict[str, float], remark: str
) -> None:
    one = problem(settings)
    found = explain(one, one.workloads[0], Peaks("some-cpu", 10.0, gflops, "made up"), dict)
    assert found.flops == () and remark in found.remark
    assert found.bound is Bound.BYTES and found.limit.t_sol_us == found.bytes_us
