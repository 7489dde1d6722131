"""Lint: answers that skip the work must be found to pass where a problem is weak, and only there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.errors import BadInput, Refused
from swarm.job import Job, Purpose, Tree
from swarm.judge.judge import Judge
from swarm.judge.lint import Finding, Weakness, lint, linted_workloads
from swarm.judge.reference import References
from swarm.problem import Problem, load_problem, problem_from_files
from swarm.protocol import Tests, load_protocol
from swarm.sol import Peaks
from swarm.verdict import Status

ROOT = Path(__file__).parents[2]
SCALE = "def run(x, weight):\n    return x * weight\n"
STRICT = "[tolerance]\nmax_atol = 1e-5\nmax_rtol = 1e-5\n"


@pytest.fixture(scope="module")
def tests() -> Tests:
    return load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md").tests


@pytest.fixture(scope="module")
def references() -> Iterator[References]:
    with References(cpu_device()) as opened:
        yield opened


def made(
    reference: str,
    settings: str = STRICT,
    dtype: str = "float32",
    columns: int = 64,
    fast: str | None = None,
) -> Problem:
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
        "workload.cpu.jsonl": json.dumps(workload).encode(),
        "reference.py": reference.encode(),
        "problem.toml": settings.encode(),
    }
    if fast is not None:
        files["fast_reference.py"] = fast.encode()
    return problem_from_files(files, "made")


Trying = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def found(tests: Tests, references: References) -> Trying:
    """Makes a problem and returns what lint finds about it."""
    return lambda *args, **kwargs: lint(made(*args, **kwargs), tests, references).findings


def test_a_problem_for_gpus_alone_is_tried_on_its_smallest_workload(
    tests: Tests, references: References
) -> None:
    problem = replace(load_problem(ROOT / "problems" / "swiglu"), cpu_workloads=())
    [chosen] = linted_workloads(problem)
    assert chosen.axes == {"tokens": 1}
    empty = chosen.model_copy(update={"uuid": "empty", "axes": {"tokens": 0}})
    assert linted_workloads(replace(problem, workloads=(empty, *problem.workloads))) == (chosen,)
    result = lint(problem, tests, references)
    assert result.findings == [] and result.rejected[Weakness.HALF_READ] == 1
    with pytest.raises(BadInput, match=r"^swiglu: nothing to try; add a workload"):
        lint(replace(problem, workloads=(empty,)), tests, references)


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


def test_a_lone_number_is_missed_where_it_is_not_read(found: Trying) -> None:
    assert found(SCALE, columns=1) == []
    unread = found("def run(x, weight):\n    return x.square() + 0 * weight\n", columns=1)
    assert (Weakness.UNREAD, "weight") in {(finding.weakness, finding.about) for finding in unread}


SOFTMAX = "import torch\ndef run(x, weight):\n    return torch.softmax(x * weight, dim=-1)\n"


def test_a_constant_passes_softmax_over_long_rows_and_the_tolerance_that_is_told_mends_it(
    tests: Tests, references: References, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lint says of the constant and of the tolerance is what the judge says of real kernels."""
    weak = made(SOFTMAX, settings="", columns=4096)
    result = lint(weak, tests, references)
    kinds = {finding.weakness for finding in result.findings}
    assert {Weakness.MEAN, Weakness.MEDIAN, Weakness.ROW_MEAN, Weakness.STALE} <= kinds
    [separation] = result.separations
    assert separation.scale is not None and separation.honest < separation.scale < separation.wrong
    told = re.search(r"max_atol = (\S+) and max_rtol = (\S+) would separate", str(separation))
    assert told is not None
    mended = made(SOFTMAX, f"[tolerance]\nmax_atol = {told[1]}\nmax_rtol = {told[2]}\n", columns=4096)
    assert lint(mended, tests, references).findings == []
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path))
    peaks = Peaks(cpu_device().model, 1e3, {"float32": 1e6}, "generous, for tests")
    with Judge(cpu_device(), tmp_path, peaks) as judge:
        assert judged(judge, weak, CONSTANT) is Status.PASSED
        assert judged(judge, mended, CONSTANT) is Status.INCORRECT_NUMERICAL
        assert judged(judge, mended, HONEST) is Status.PASSED


HEAD = """#include "problem.h"
#include <cmath>
extern "C" void run(const float* x, const float* weight, float* y, int64_t rows) {
"""
CONSTANT = "for (int64_t i = 0; i < rows * columns; ++i) y[i] = 1.0f / columns; }"
HONEST = """
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < columns; ++i) most = std::fmax(most, x[i] * weight[i]);
    for (int64_t i = 0; i < columns; ++i) sum += y[i] = std::exp(x[i] * weight[i] - most);
    for (int64_t i = 0; i < columns; ++i) y[i] /= sum;
  }
}"""


def judged(judge: Judge, problem: Problem, body: str) -> Status:
    manifest = b'language = "cpp"\nsources = ["kernel.cpp"]\n'
    tree = Tree("a" * 40, "b" * 40, {"solution.toml": manifest, "kernel.cpp": (HEAD + body).encode()})
    files = {**problem.files, "COORDINATION.md": (ROOT / "COORDINATION.md").read_bytes()}
    epoch = problem.settings.model_dump_json()
    return judge.verdict(Job("k", Purpose.VERDICT, "made", epoch, files, tree)).status


def test_what_no_tolerance_rejects_is_told_apart(tests: Tests, references: References) -> None:
    reference = "def run(x, weight):\n    return x.square() + 0 * weight\n"
    [separation] = lint(made(reference, LOOSE), tests, references).separations
    assert separation.hopeless == ("half read (weight)", "unread (weight)")
    assert separation.scale is not None
    assert re.search(r"would separate; no tolerance rejects half read \(weight\), ", str(separation))
    [separation] = lint(made(reference), tests, references).separations
    assert separation.scale is None
    assert "separate" not in str(separation)


def test_a_reference_that_runs_in_one_precision_only_leaves_a_doubt_about_the_tolerance(
    tests: Tests, references: References
) -> None:
    reference = "def run(x, weight):\n    assert x.itemsize == 4\n    return x * weight\n"
    result = lint(made(reference, LOOSE), tests, references)
    assert {finding.weakness for finding in result.findings} == {Weakness.LOWER_PRECISION}
    [separation] = result.separations
    doubt = "what an honest answer is off by is not known: made/reference.py line 2: AssertionError"
    assert str(separation).endswith(f"would separate; {doubt}")


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
    result = lint(made(reference), tests, references)
    [finding] = result.findings
    assert finding.is_broken
    assert said in str(finding)
    assert result.separations == []


@pytest.mark.parametrize(
    ("returned", "off", "settings"),
    [
        ("x * weight", None, STRICT),
        ("(x * weight) * (1 + 2e-6) ", None, STRICT),
        ("(x * weight) * (1 + 5e-6)", r"0\.[45]\d*", STRICT),
        ("x * weight + 1e-3 * (x > 0)", "[1-9].*", STRICT),
        ("torch.where(one_in(50), 9, x * weight)", None, MOST),
        ("torch.where(one_in(16), 9, x * weight)", r"\d.*", MOST),
        ("torch.where(one_in(50), 9, x * weight)", r"\d.*", MOST + "max_error_cap = 1\n"),
        ("x * weight / 0", "inf", STRICT),
    ],
)
def test_a_fast_reference_gives_the_plain_ones_answer(
    returned: str, off: str | None, settings: str, found: Trying
) -> None:
    one_in = "one_in = lambda n: torch.arange(x.numel()).view_as(x) % n == 0"
    fast = f"import torch\ndef run(x, weight):\n    {one_in}\n    return {returned}\n"
    told = [str(finding) for finding in found(SCALE, settings, fast=fast) if finding.is_broken]
    line = f"workload w: fast_reference.py differs from reference.py in y: off by {off} of the tolerance, "
    assert len(told) == (off is not None)
    assert all(re.fullmatch(line + "0.33 are allowed", one) for one in told), told


def test_a_fast_reference_that_fails_is_named(found: Trying) -> None:
    [finding] = found(SCALE, fast="def run(x, weight):\n    return x.fast()\n")
    assert finding.is_broken and "has no attribute 'fast'" in str(finding)


def test_a_reference_that_died_takes_no_other_workload_with_it(tests: Tests, references: References) -> None:
    reference = (
        "import os\ndef run(x, weight):\n    len(x) == 32 or os.kill(os.getpid(), 9)\n    return x * weight\n"
    )
    problem = made(reference)
    good = problem.workloads[0]
    bad = good.model_copy(update={"uuid": "bad", "axes": {"rows": 31}})
    result = lint(replace(problem, cpu_workloads=(bad, good)), tests, references)
    assert [(finding.workload, finding.is_broken) for finding in result.findings] == [("bad", True)]
    assert result.rejected[Weakness.ZEROS] == 1


def test_a_workload_that_does_not_fit_in_memory_is_refused_with_the_numbers(
    tests: Tests, references: References
) -> None:
    problem = made(SCALE)
    huge = problem.workloads[0].model_copy(update={"axes": {"rows": 10**10}})
    with pytest.raises(
        Refused,
        match=r"workload w: not tried: with axes rows = 10{10} that may take \d{6,} MiB, and \d+ MiB of",
    ):
        lint(replace(problem, cpu_workloads=(huge,)), tests, references)
