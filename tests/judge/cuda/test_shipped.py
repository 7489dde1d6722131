"""A GPU's own contents for all problems, those they make themselves too: no answer is degenerate."""

from __future__ import annotations

import pytest

from benchmarks.gpu_jobs import with_workloads
from tests.judge.cuda.conftest import Bench
from tests.judge.cuda.test_sitting import TESTS, InProcess
from tests.suite.drawn import on_a_gpu
from tests.suite.shipped import NAMES, shipped, written
from tests.suite.test_references import check_calls


@pytest.mark.parametrize("name", NAMES)
def test_answers_at_small_sizes_have_spread_and_change_with_each_input(name: str, bench: Bench) -> None:
    problem = shipped(name)
    problem = with_workloads(problem, written("SMALL")[name], problem.workloads[0].scalars)
    reference = InProcess(bench, problem)
    for workload in problem.workloads:
        with on_a_gpu(problem, workload, reference, bench.context, bench.kernels) as calls:
            check_calls(problem, workload, calls, reference, TESTS, together=True)
