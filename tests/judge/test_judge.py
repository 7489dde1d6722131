"""Whole jobs: real compilers, runners and references, with a small problem and candidates of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.job import Job, Purpose, Tree
from swarm.judge.judge import Judge
from swarm.sol import Peaks
from swarm.verdict import Comparison, Outcome, Status, Verdict

COORDINATION = Path(__file__).resolve().parents[2] / "COORDINATION.md"
DEVICE = cpu_device()
PEAKS = Peaks(DEVICE.model, 1000.0, {"float32": 1e6}, "generous, for tests")
MANIFEST = b'language = "cpp"\nsources = ["kernel.cpp"]\n'
HEAD = """#include "problem.h"
#include <cmath>
extern "C" void run(const float* x, const float* w, double scale, float* y, int64_t rows) {
"""
LOOP = "for (int64_t r = 0; r < rows; ++r) for (int64_t c = 0; c < columns; ++c) "
HONEST = f"{LOOP} y[r * columns + c] = x[r * columns + c] * w[c] * float(scale);"
SLOW = (
    f"{LOOP} {{ float v = x[r * columns + c]; for (int i = 0; i < 40; ++i) v = std::sqrt(v * v + 0.0f);"
    " y[r * columns + c] = std::copysign(v, x[r * columns + c]) * w[c] * float(scale); }"
)
DEFINITION = {
    "name": "scale",
    "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": 256}},
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"},
        "w": {"shape": ["columns"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "float32"}},
    "reference": "def run(x, w, scale):\n    return x * w * scale\n",
}


def workload(name: str, rows: int) -> dict[str, object]:
    inputs = {"x": {"type": "random"}, "w": {"type": "random"}, "scale": {"type": "scalar", "value": 1.5}}
    return {"uuid": name, "axes": {"rows": rows}, "inputs": inputs}


def files(**changes: object) -> dict[str, bytes]:
    lines = "\n".join(json.dumps(workload(f"rows-{rows}", rows)) for rows in (7, 200)).encode()
    return {
        "definition.json": json.dumps(DEFINITION | changes).encode(),
        "workload.jsonl": lines,
        "workload.cpu.jsonl": lines,
        "COORDINATION.md": COORDINATION.read_bytes(),
    }


def tree(body: str) -> Tree:
    return Tree("a" * 40, "b" * 40, {"solution.toml": MANIFEST, "kernel.cpp": f"{HEAD}{body}\n}}\n".encode()})


def job(body: str, epoch: str = "e1", **changes: object) -> Job:
    return Job("k1", Purpose.VERDICT, "scale", epoch, files(**changes), tree(body))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(DEVICE, tmp_path_factory.mktemp("cache"), PEAKS) as made:
        yield made


@pytest.fixture(autouse=True)
def _own_device_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))


def test_an_honest_tree_passes_with_all_that_is_needed_to_judge_it_again(judge: Judge) -> None:
    verdict = judge.verdict(job(HONEST))
    assert verdict.status is Status.PASSED, verdict.reason
    assert {w.uuid for w in verdict.workloads} == {"rows-7", "rows-200"}
    for found in verdict.workloads:
        assert found.time_us and found.ci_us is not None and found.calls >= 10
        assert found.matched_ratio == 1.0 and found.t_sol_us
    assert verdict.seed and verdict.environment.versions["torch"] and verdict.environment.sandbox
    assert 0 < verdict.measured_s <= verdict.total_s
    assert verdict.language == "cpp"


def test_outputs_are_compared_with_the_fast_reference_where_there_is_one(judge: Judge) -> None:
    """It gives another answer here, so that one can tell; lint would not have that."""
    plain = "import torch\ndef run(x, w, scale):\n    return x * w * scale + 0 * torch.mm(x, x.mT).sum()\n"
    fast = b"def run(x, w, scale):\n    return 2 * x * w * scale\n"
    asked = job(HONEST, "fast", reference=plain)
    asked.problem_files["fast_reference.py"] = fast
    assert judge.verdict(asked).status is Status.INCORRECT_NUMERICAL
    verdict = judge.verdict(replace(asked, candidate=tree(HONEST.replace("=", "= 2 *"))))
    assert verdict.status is Status.PASSED, verdict.reason
    assert {w.flops for w in verdict.workloads} == {2 * 7 * 7 * 256, 2 * 200 * 200 * 256}, "of the plain one"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("y[0] = 1;", Status.INCORRECT_NUMERICAL, "never written"),
        (f"{LOOP} y[r * columns + c] = x[r * columns + c];", Status.INCORRECT_NUMERICAL, "expected"),
        (f"{LOOP} y[r * columns + c] = NAN;", Status.INCORRECT_NUMERICAL, "nan"),
        (f"{HONEST} y[rows * columns] = 1;", Status.RUNTIME_ERROR, "1 bytes past the end of y"),
        (f"{HONEST} y[-1] = 1;", Status.RUNTIME_ERROR, "before the start of y"),
        (f"{HONEST} const_cast<float*>(x)[3] = 1;", Status.REWARD_HACK, "changed its input x"),
        ("__builtin_trap();", Status.RUNTIME_ERROR, "SIGILL"),
        ("this is not C++", Status.COMPILE_ERROR, "error"),
        (
            f"static bool late; if (late) return; late = true; {HONEST}",
            Status.INCORRECT_NUMERICAL,
            "never written",
        ),
    ],
    ids=["unwritten", "wrong", "nan", "past-the-end", "before", "input", "crash", "syntax", "only-once"],
)
def test_a_tree_that_is_wrong_gets_its_status_and_the_evidence(
    judge: Judge, body: str, status: Status, words: str
) -> None:
    verdict = judge.verdict(job(body))
    assert verdict.status is status, verdict.reason
    assert words in verdict.reason
    assert verdict.time_us is None


def test_an_answer_that_is_remembered_is_wrong_for_the_next_contents(judge: Judge) -> None:
    remember = f"static float old[1 << 20]; static bool has; if (!has) {{ {HONEST} "
    replay = "for (int64_t i = 0; i < rows * columns; ++i) old[i] = y[i]; has = true; return; } "
    copy = "for (int64_t i = 0; i < rows * columns; ++i) y[i] = old[i];"
    assert judge.verdict(job(remember + replay + copy)).status is Status.INCORRECT_NUMERICAL


def test_a_tree_that_breaks_the_protocol_is_not_run(judge: Judge) -> None:
    bad = replace(job(HONEST), candidate=Tree("a" * 40, "b" * 40, {"kernel.cpp": b"x"}))
    verdict = judge.verdict(bad)
    assert verdict.status is Status.INVALID_SOLUTION
    assert "solution.toml" in verdict.reason


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("def run(x, w, scale):\n    raise ValueError('no')\n", "ValueError: no"),
        ("def run(x, w, scale):\n    return x[:, :1]\n", "shape"),
        ("def run(x, w, scale):\n    return x / 0\n", "reference returned"),
        ("import os\ndef run(x, w, scale):\n    os._exit(3)\n", "died"),
        ("import nothing_of_that_name\ndef run(x, w, scale):\n    return x\n", "ModuleNotFoundError"),
    ],
    ids=["raises", "shape", "inf", "dies", "import"],
)
def test_a_broken_reference_is_the_problems_fault_and_the_next_job_is_judged(
    judge: Judge, reference: str, words: str
) -> None:
    verdict = judge.verdict(job(HONEST, epoch=words, reference=reference))
    assert verdict.status is Status.INVALID_REFERENCE, verdict.reason
    assert words in verdict.reason
    assert judge.verdict(job(HONEST)).status is Status.PASSED


def test_faster_than_physics_is_quarantined(tmp_path: Path, judge: Judge) -> None:
    slow_device = Peaks(DEVICE.model, 1e-3, {"float32": 1.0}, "a very slow memory")
    with Judge(DEVICE, tmp_path, slow_device) as other:
        verdict = other.verdict(job(HONEST))
    assert verdict.status is Status.BELOW_SOL
    assert "physical floor" in verdict.reason


def test_a_clearly_faster_tree_is_found_faster_and_the_other_way_round_slower(judge: Judge) -> None:
    assert compared(judge, champion=SLOW, candidate=HONEST).outcome is Outcome.FASTER
    assert compared(judge, champion=HONEST, candidate=SLOW).outcome is Outcome.SLOWER


def test_a_candidate_that_fails_in_a_comparison_is_undecided_with_its_status(judge: Judge) -> None:
    comparison = compared(judge, champion=HONEST, candidate="y[0] = 1;")
    assert comparison.outcome is Outcome.UNDECIDED
    assert comparison.failure is Status.INCORRECT_NUMERICAL
    assert "the candidate failed" in comparison.reason


def compared(judge: Judge, champion: str, candidate: str) -> Comparison:
    found = judge.judge(replace(job(candidate), purpose=Purpose.COMPARISON, champion=tree(champion)))
    assert isinstance(found, Comparison)
    return found


def test_the_kind_of_job_decides_the_record(judge: Judge) -> None:
    assert isinstance(judge.judge(job(HONEST)), Verdict)


def test_inputs_can_come_from_the_problems_own_code(judge: Judge) -> None:
    own = (
        "import torch\ndef run(x, w, scale):\n    return x * w * scale\n"
        "def make(axes, device):\n    rows, columns = axes['rows'], axes['columns']\n"
        "    return {'w': torch.randn(columns), 'x': torch.randn(rows, columns), 'scale': 2.0}\n"
    )
    custom = job(HONEST, epoch="custom", reference=own, custom_inputs_entrypoint="make")
    line = json.dumps(workload("w", 7) | {"inputs": {n: {"type": "custom"} for n in ("x", "w", "scale")}})
    made = custom.problem_files | {"workload.jsonl": line.encode(), "workload.cpu.jsonl": line.encode()}
    verdict = judge.verdict(replace(custom, problem_files=made))
    assert verdict.status is Status.PASSED, verdict.reason
    replay = f"static int calls; if (calls++ % 2) {{ y[0] = 1; return; }} {HONEST}"
    assert judge.verdict(replace(custom, problem_files=made, candidate=tree(replay))).time_us is None


def test_a_reference_in_higher_precision_sees_wider_inputs(judge: Judge) -> None:
    picky = (
        "import torch\ndef run(x, w, scale):\n    assert x.dtype == torch.float64\n    return x * w * scale\n"
    )
    settings = {"problem.toml": b'reference_precision = "higher"\n'}
    wide = job(HONEST, epoch="wide", reference=picky)
    assert judge.verdict(replace(wide, problem_files=wide.problem_files | settings)).status is Status.PASSED
    assert judge.verdict(replace(wide, epoch="narrow")).status is Status.INVALID_REFERENCE


def test_flops_of_a_matrix_product_raise_the_floor(tmp_path: Path, judge: Judge) -> None:
    product = "import torch\ndef run(x, w, scale):\n    return (x @ x.T @ x) * 0 + x * w * scale\n"
    slow_arithmetic = Peaks(DEVICE.model, 1e6, {"float32": 1e-3}, "one million operations a second")
    with Judge(DEVICE, tmp_path, slow_arithmetic) as other:
        verdict = other.verdict(job(HONEST, epoch="flops", reference=product))
    assert verdict.status is Status.BELOW_SOL, verdict.reason
    [first] = [w for w in verdict.workloads if w.uuid == "rows-7"] or [verdict.workloads[0]]
    rows = int(first.uuid.removeprefix("rows-"))
    assert first.t_sol_us == pytest.approx(2 * 2 * rows * rows * 256, rel=1e-6)
