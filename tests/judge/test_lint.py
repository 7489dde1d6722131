"""Lint: answers that skip the work must be found to pass where a problem is weak, and only there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.judge.lint import Finding, Weakness, lint, linted_workloads
from swarm.judge.reference import References
from swarm.problem import Problem, load_problem, problem_from_files
from swarm.protocol import Tests, load_protocol

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.name for path in (ROOT / "problems").iterdir() if path.is_dir())
SCALE = "def run(x, weight):\n    return x * weight\n"
STRICT = "[tolerance]\nmax_atol = 1e-5\nmax_rtol = 1e-5\n"


@pytest.fixture(scope="module")
def tests() -> Tests:
    return load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md").tests


@pytest.fixture(scope="module")
def references() -> Iterator[References]:
    with References(cpu_device()) as opened:
        yield opened


def made(reference: str, settings: str = STRICT, dtype: str = "float32", columns: int = 64) -> Problem:
    definition = {
        "name": "made",
        "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": columns}},
        "inputs": {
            "x": {"shape": ["rows", "columns"], "dtype": dtype},
            "weight": {"shape": ["columns"], "dtype": dtype},
        },
        "outputs": {"y": {"shape": ["rows", "columns"], "dtype": dtype}},
    }
    random = {"type": "random"}
    workload = {"uuid": "w", "axes": {"rows": 32}, "inputs": {"x": random, "weight": random}}
    files = {
        "definition.json": json.dumps(definition).encode(),
        "workload.jsonl": json.dumps(workload).encode(),
        "reference.py": reference.encode(),
        "problem.toml": settings.encode(),
    }
    return problem_from_files(files, "made")


def weaknesses(found: list[Finding]) -> set[Weakness]:
    return {finding.weakness for finding in found if finding.is_weak}


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_that_ships_is_sound(name: str, tests: Tests, references: References) -> None:
    problem = load_problem(ROOT / "problems" / name)
    smallest = replace(problem, cpu_workloads=(min(problem.cpu_workloads, key=problem.sol_bytes),))
    assert [str(finding) for finding in lint(smallest, tests, references)] == []


def test_a_sound_problem_has_no_findings(tests: Tests, references: References) -> None:
    assert lint(made(SCALE), tests, references) == []


def test_softmax_over_long_rows_with_a_loose_tolerance_passes_as_zeros(
    tests: Tests, references: References
) -> None:
    reference = "import torch\ndef run(x, weight):\n    return torch.softmax(x * 0.1 + 0 * weight, dim=-1)\n"
    found = lint(made(reference, settings="", columns=4096), tests, references)
    assert {Weakness.MEAN, Weakness.ROW_MEAN, Weakness.HALF_WRITTEN} <= weaknesses(found)
    assert Weakness.NO_SPREAD in weaknesses(found)


def test_an_output_that_ignores_its_input_is_stale_and_leaves_it_unread(
    tests: Tests, references: References
) -> None:
    reference = "import torch\ndef run(x, weight):\n    return (x * 0).cumsum(-1) + torch.arange(64.0)\n"
    found = weaknesses(lint(made(reference), tests, references))
    assert {Weakness.STALE, Weakness.UNREAD, Weakness.HALF_READ} <= found


def test_identity_passes_as_a_copy(tests: Tests, references: References) -> None:
    found = lint(made("def run(x, weight):\n    return x + 0 * weight\n"), tests, references)
    assert {(f.weakness, f.about) for f in found if f.weakness is Weakness.COPY} == {(Weakness.COPY, "y")}
    assert ("unread", "weight") in {(f.weakness, f.about) for f in found}


def test_a_half_that_does_not_matter_is_found(tests: Tests, references: References) -> None:
    reference = "def run(x, weight):\n    return x[:, :32].repeat(1, 2) * weight\n"
    found = lint(made(reference), tests, references)
    assert {(f.weakness, f.about) for f in found if f.is_weak} == {(Weakness.HALF_READ, "x")}


def test_a_loose_tolerance_lets_lower_precision_pass(tests: Tests, references: References) -> None:
    loose = "[tolerance]\nmax_atol = 0.02\nmax_rtol = 0.02\n"
    assert weaknesses(lint(made(SCALE, loose), tests, references)) == {Weakness.LOWER_PRECISION}


def test_matched_ratio_of_a_half_lets_half_the_work_pass(tests: Tests, references: References) -> None:
    settings = STRICT + "required_matched_ratio = 0.5\n"
    found = lint(made(SCALE, settings), tests, references)
    assert weaknesses(found) == {Weakness.HALF_WRITTEN, Weakness.HALF_READ}
    assert all(finding.matched_ratio >= 0.5 for finding in found)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("def run(x, weight):\n    return x * weight / 0\n", "returned"),
        ("def run(x, weight):\n    raise KeyError('nothing')\n", "nothing"),
        ("def run(x, weight):\n    return x\n1 / 0\n", "division by zero"),
        ("import os\ndef run(x, weight):\n    os.kill(os.getpid(), 9)\n", "died"),
    ],
    ids=["non-finite", "raises", "does not load", "dies"],
)
def test_a_bad_reference_is_a_finding(
    reference: str, said: str, tests: Tests, references: References
) -> None:
    (finding,) = lint(made(reference), tests, references)
    assert finding.weakness is Weakness.BAD_REFERENCE
    assert finding.is_weak
    assert said in str(finding)


def test_without_cpu_workloads_the_smallest_one_is_linted() -> None:
    problem = load_problem(ROOT / "problems" / "swiglu")
    (chosen,) = linted_workloads(replace(problem, cpu_workloads=()))
    assert chosen.axes == {"tokens": 1}
