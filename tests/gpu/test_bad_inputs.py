"""Whatever a candidate does to the GPU, it gets a status and a reason, and the next one finds a sound GPU."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from swarm.judge.build import Built, build
from swarm.judge.judge import Judge
from swarm.languages.protocol import Failure
from swarm.verdict import Status, Verdict
from tests.gpu import trees

RUN_S, COMPILE_S = 2, 6
GRACE_S = 20
"""For what is neither compiling nor running: a new process, a look at the device."""

INVALID, FAILED, WRONG = Status.INVALID_SOLUTION, Status.RUNTIME_ERROR, Status.INCORRECT_NUMERICAL
COMPILE_TIME: dict[str, tuple[Status, str]] = {
    "too_much_shared": (INVALID, r"launch\[0\]\W*smem"),
    "wrong_grid": (INVALID, r"launch\[0\]\W*grid\[1\].*70000"),
    "zero_division": (INVALID, r"launch\[0\]\W*grid\[0\].*ceildiv\(n, 0\)"),
    "large_block": (INVALID, r"launch\[0\]\W*block.*2048"),
    "wrong_arguments": (INVALID, r"launch\[0\]\W*args"),
    "syntax_error": (Status.COMPILE_ERROR, r"kernel\.cu"),
    "slow_compile": (Status.COMPILE_ERROR, r"did not end within|memory"),
    "template_explosion": (Status.COMPILE_ERROR, r"did not end within|memory|depth|instantiat"),
    "endless_template": (Status.COMPILE_ERROR, r"did not end within|memory|depth|instantiat|recurs"),
}
"""Found without a GPU."""
RUN_TIME: dict[str, tuple[tuple[Status, ...], str]] = {
    "illegal_address": ((FAILED,), r"(?i)illegal"),
    "misaligned": ((FAILED,), r"(?i)misaligned"),
    "endless": ((Status.TIMEOUT,), r"within 2 s"),
    "device_assert": ((FAILED,), r"(?i)assert"),
    "trap": ((FAILED,), r"(?i)launch|trap|illegal|fail"),
    "stack_overflow": ((FAILED,), r"(?i)illegal|stack|launch"),
    "large_frame": ((FAILED, WRONG), r"(?i)memory|output y"),
    "huge_scratch": ((FAILED, INVALID), r"(?i)memory|bytes|scratch"),
    "unwritten": ((WRONG,), r"never written"),
    "out_of_bounds": ((FAILED,), r"output y|of y"),
    "cpp_wrong_grid": ((FAILED, WRONG), r"(?i)invalid|never written"),
    "cpp_shared": ((FAILED, WRONG), r"(?i)invalid|never written"),
    "cpp_assert": ((FAILED,), r"(?i)assert"),
    "cpp_endless": ((Status.TIMEOUT,), r"within 2 s"),
    "cpp_crash": ((FAILED,), r"(?i)signal|segmentation|SIGSEGV"),
    "python_memory": ((FAILED,), r"(?i)memory"),
    "python_raises": ((FAILED,), r"on purpose"),
    "triton_endless": ((Status.TIMEOUT,), r"within 2 s"),
}
GOOD = {"good": "cuda", "cpp_good": "cuda_cpp", "python_good": "pytorch"}


def test_every_bad_tree_is_expected_somewhere() -> None:
    assert set(trees.BAD) == COMPILE_TIME.keys() | RUN_TIME.keys() | GOOD.keys()


@pytest.mark.parametrize("name", COMPILE_TIME)
def test_what_cannot_be_built_is_found_without_a_gpu(name: str, tmp_path: Path) -> None:
    status, reason = COMPILE_TIME[name]
    rules = trees.frozen(trees.problem("twice"), compile_timeout_s=COMPILE_S)
    begun_s = time.monotonic()
    made = build(trees.bad(name), rules, trees.ABSENT_H200, tmp_path)
    assert isinstance(made, Failure)
    assert made.status is status, made.reason
    assert re.search(reason, f"{made.reason}\n{made.log}"), made.reason
    assert time.monotonic() - begun_s < COMPILE_S + GRACE_S


@pytest.mark.parametrize(
    "name", [name for name in RUN_TIME if not name.startswith(("cpp", "triton", "python"))]
)
def test_what_only_fails_when_it_runs_can_be_built_without_a_gpu(name: str, tmp_path: Path) -> None:
    made = build(trees.bad(name), trees.frozen(trees.problem("twice")), trees.ABSENT_H200, tmp_path)
    allowed = INVALID in RUN_TIME[name][0]
    assert isinstance(made, Built) or (allowed and made.status is INVALID), made


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_all_in_a_row_with_a_good_kernel_after_each(judge: Judge) -> None:
    problem = trees.problem("twice")
    rules = {"run_timeout_s": RUN_S, "compile_timeout_s": COMPILE_S, "max_calls": 12, "budget_s": 0.2}
    found: list[str] = []
    wrong: list[str] = []
    for kind in GOOD:
        first = judge.judge(trees.job(problem, trees.bad(kind), None, f"first-{kind}", **rules))
        assert isinstance(first, Verdict)
        assert first.status is Status.PASSED, f"{kind}: {first.reason}\n{first.log}"
    expected = {name: ((status,), reason) for name, (status, reason) in COMPILE_TIME.items()} | RUN_TIME
    for name, (statuses, reason) in expected.items():
        begun_s = time.monotonic()
        verdict = judge.judge(trees.job(problem, trees.bad(name), None, name, **rules))
        took_s = time.monotonic() - begun_s
        good = judge.judge(trees.job(problem, trees.bad("good"), None, f"after-{name}", **rules))
        assert isinstance(verdict, Verdict)
        assert isinstance(good, Verdict)
        line = f"{name}: {verdict.status} after {took_s:.1f} s: {verdict.reason}"
        found.append(line)
        print(line)
        if verdict.status not in statuses or not re.search(reason, f"{verdict.reason}\n{verdict.log}"):
            wrong.append(line)
        if took_s > RUN_S + COMPILE_S + GRACE_S:
            wrong.append(f"{name} took {took_s:.1f} s")
        if good.status is not Status.PASSED:
            wrong.append(f"the good kernel after {name}: {good.status}: {good.reason}\n{good.log}")
    assert not wrong, "\n".join(wrong)
