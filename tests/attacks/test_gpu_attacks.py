"""What of the attacks on a GPU shows without one: they reach the GPU, and their answers are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swarm.judge.build import Built, build, frozen
from swarm.problem import problem_from_files
from swarm.solution import load_manifest, validate_tree
from swarm.verdict import Status
from tests.attacks.test_device_only import H200
from tests.corpus.cases import Case, Files, cases
from tests.corpus.device_rows import device
from tests.corpus.judged import job, problem_files
from tests.gpu.emulated import matches

ATTACKS = cases("attack", "gpu")
EARLY = (Status.INVALID_SOLUTION, Status.COMPILE_ERROR)
ON_A_CPU = {case.name: case for case in ATTACKS if case.language == "cuda"}
HOST = [case for case in ATTACKS if case.language != "cuda"]
KEPT = [
    "cuda.keeps_the_first_answer_in_a_device_variable",
    "cuda.keeps_an_answer_on_the_devices_heap",
    "cuda.keeps_an_answer_in_scratch_memory",
    "cuda.knows_its_inputs_by_a_fingerprint",
]
"""Tricks that go on from an earlier call."""


def emulated(files: Files, folder: Path) -> list[str]:
    """Return what is wrong with each of two calls of two workloads."""
    given = dict(problem_files("rows", "gpu", "cuda"))
    problem = problem_from_files(given | {"workload.jsonl": given["workload.cpu.jsonl"]}, "rows")
    return [match.reason for match in matches(problem, files, folder)]


@pytest.mark.parametrize("case", HOST, ids=lambda case: case.name)
def test_only_what_the_scan_is_to_stop_is_stopped_by_it(case: Case) -> None:
    rules = frozen(job(case))
    if case.status is Status.INVALID_SOLUTION:
        made = build(case.files, rules, H200, Path("never written"))
        assert not isinstance(made, Built)
        assert made.status is case.status
        assert re.search(case.reason, made.reason)
    else:
        validate_tree(case.files, rules.protocol)
        assert load_manifest(case.files).language == case.language


@pytest.mark.parametrize("case", ON_A_CPU.values(), ids=lambda case: case.name)
def test_device_code_is_refused_for_the_reason_told_or_compiled(case: Case, tmp_path: Path) -> None:
    made = build(case.files, frozen(job(case)), H200, tmp_path)
    assert isinstance(made, Built) == (case.status not in EARLY)
    if not isinstance(made, Built):
        assert made.status is case.status
        assert re.search(case.reason, made.reason)


def test_what_the_tricks_are_built_on_is_right(tmp_path: Path) -> None:
    assert emulated(device("honest(x, w, y, row);"), tmp_path) == [""] * 4


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_from_another_call_is_the_wrong_answer(name: str, tmp_path: Path) -> None:
    found = emulated(ON_A_CPU[name].files, tmp_path)
    assert found[1] and found[3], "the second call of each size"


def test_half_precision_is_beyond_the_tolerance(tmp_path: Path) -> None:
    assert all(emulated(ON_A_CPU["cuda.computes_in_half_precision"].files, tmp_path))
