"""Lint: answers that skip the work must be found to pass where a problem is weak, and only there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.errors import Refused
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


Trying = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def found(tests: Tests, references: References) -> Trying:
    """Makes a problem and returns what lint finds about it."""
    return lambda *args, **kwargs: lint(made(*args, **kwargs), tests, references)[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_that_ships_is_sound(name: str, tests: Tests, references: References) -> None:
    problem = load_problem(ROOT / "problems" / name)
    findings, _ = lint(problem, tests, references)
    assert [str(finding) for finding in findings] == []
    assert not problem.settings.weak


def test_a_sound_problem_has_no_findings(tests: Tests, references: References) -> None:
    assert lint(made(SCALE), tests, references) == ([], [])


HALF = STRICT + "required_matched_ratio = 0.5\n"
MOST = STRICT + "required_matched_ratio = 0.9\n"
LOOSE = "[tolerance]\nmax_atol = 0.02\nmax_rtol = 0.02\n"


@pytest.mark.parametrize(
    ("weakness", "about", "returned", "settings"),
    [
        (Weakness.ZEROS, "y", "x * 0", STRICT),
        (Weakness.ONES, "y", "x * 0 + 1", STRICT),
        (Weakness.MEAN, "y", "x * 0 + x.mean()", STRICT),
        (Weakness.MEDIAN, "y", "7 * (torch.arange(64) > 2) + 0 * x", MOST),
        (Weakness.ROW_MEAN, "y", "x.mean(-1, keepdim=True) + 0 * x", STRICT),
        (Weakness.HALF_WRITTEN, "y", "x * weight", HALF),
        (Weakness.COPY, "y from x", "x + 0 * weight", STRICT),
        (Weakness.COPY, "y from weight", "weight + 0 * x", STRICT),
        (Weakness.STALE, "y", "torch.arange(64.0) + 0 * x", STRICT),
        (Weakness.HALF_READ, "x", "x[:, :32].repeat(1, 2) * weight", STRICT),
        (Weakness.UNREAD, "weight", "x.square() + 0 * weight", STRICT),
        (Weakness.LOWER_PRECISION, "all", "x * weight", LOOSE),
        (Weakness.NO_SPREAD, "y", "x + weight", "[tolerance]\nmax_atol = 0.1\nmax_rtol = 0\n"),
    ],
)
def test_each_wrong_answer_is_found_where_it_passes(
    weakness: Weakness, about: str, returned: str, settings: str, found: Trying
) -> None:
    findings = found(f"import torch\ndef run(x, weight):\n    return {returned}\n", settings)
    assert (weakness, about) in {(finding.weakness, finding.about) for finding in findings}


def test_only_what_passes_is_found(found: Trying) -> None:
    halves = found("def run(x, weight):\n    return x[:, :32].repeat(1, 2) * weight\n")
    assert {(f.weakness, f.about) for f in halves} == {(Weakness.HALF_READ, "x")}
    assert {f.weakness for f in found(SCALE, LOOSE)} == {Weakness.LOWER_PRECISION}
    half = found(SCALE, HALF)
    assert {f.weakness for f in half} == {Weakness.HALF_WRITTEN, Weakness.HALF_READ}
    assert all(f.matched_ratio >= 0.5 for f in half)


def test_a_constant_passes_softmax_over_long_rows_and_the_tolerance_that_is_told_mends_it(
    tests: Tests, references: References
) -> None:
    reference = "import torch\ndef run(x, weight):\n    return torch.softmax(x * weight, dim=-1)\n"
    findings, [separation] = lint(made(reference, settings="", columns=4096), tests, references)
    assert {Weakness.MEAN, Weakness.MEDIAN, Weakness.ROW_MEAN, Weakness.STALE} <= {
        finding.weakness for finding in findings
    }
    assert separation.scale is not None and separation.honest < separation.scale < separation.wrong
    told = re.search(r"max_atol = (\S+) and max_rtol = (\S+) would separate", str(separation))
    assert told is not None
    mended = f'reference_precision = "higher"\n[tolerance]\nmax_atol = {told[1]}\nmax_rtol = {told[2]}\n'
    left, _ = lint(made(reference, mended, columns=4096), tests, references)
    assert [str(finding) for finding in left] == []


def test_what_no_tolerance_rejects_is_told_apart(tests: Tests, references: References) -> None:
    reference = "def run(x, weight):\n    return x.square() + 0 * weight\n"
    _, [separation] = lint(made(reference, LOOSE), tests, references)
    assert separation.hopeless == ("half read (weight)", "unread (weight)")
    assert separation.scale is not None
    assert re.search(r"would separate; no tolerance rejects half read \(weight\), ", str(separation))
    _, [separation] = lint(made(reference), tests, references)
    assert separation.scale is None
    assert "separate" not in str(separation)


def test_a_reference_that_runs_in_one_precision_only_leaves_a_doubt_about_the_tolerance(
    tests: Tests, references: References
) -> None:
    reference = "def run(x, weight):\n    assert x.itemsize == 4\n    return x * weight\n"
    findings, [separation] = lint(made(reference, LOOSE), tests, references)
    assert {finding.weakness for finding in findings} == {Weakness.LOWER_PRECISION}
    assert "would separate; what an honest answer is off by is not known: AssertionError" in str(separation)


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
    ([finding], separations) = lint(made(reference), tests, references)
    assert finding.is_broken
    assert said in str(finding)
    assert separations == []


def test_a_reference_that_died_takes_no_other_workload_with_it(tests: Tests, references: References) -> None:
    reference = (
        "import os\ndef run(x, weight):\n    len(x) == 32 or os.kill(os.getpid(), 9)\n    return x * weight\n"
    )
    problem = made(reference)
    good = problem.workloads[0]
    bad = good.model_copy(update={"uuid": "bad", "axes": {"rows": 31}})
    findings, _ = lint(replace(problem, cpu_workloads=(bad, good)), tests, references)
    assert [(finding.workload, finding.is_broken) for finding in findings] == [("bad", True)]


def test_a_workload_that_does_not_fit_in_memory_is_refused_with_the_numbers(
    tests: Tests, references: References
) -> None:
    problem = made(SCALE)
    huge = problem.workloads[0].model_copy(update={"axes": {"rows": 10**10}})
    with pytest.raises(Refused, match=r"workload w: not tried: that may take \d{6,} MiB, and \d+ MiB of"):
        lint(replace(problem, workloads=(huge,)), tests, references)


def test_without_cpu_workloads_the_smallest_one_is_linted() -> None:
    problem = load_problem(ROOT / "problems" / "swiglu")
    (chosen,) = linted_workloads(replace(problem, cpu_workloads=()))
    assert chosen.axes == {"tokens": 1}
