"""`swarm problems show`: the definition in words, and what is known on a GPU that is not here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.baseline import Baseline, Contender, save_baseline
from swarm.cli import main as cli
from swarm.contents import files_hash
from swarm.hub import epoch_hash
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.problem import load_problem
from swarm.verdict import JUDGE_VERSION, Status, WorkloadResult
from tests.problem_files import definition, encoded, problem_files, workload
from tests.records import ENVIRONMENT, verdict
from tests.support import make_root

H200 = "nvidia-h200"
SETTINGS = """family = "elementwise"
op_class = "elementwise"
source = "somebody's model"
reference_precision = "higher"
[tolerance]
max_atol = 1e-3
max_rtol = 0.25
required_matched_ratio = 0.99
[inputs]
x = "normal(0, 2)"
[sol]
flops = "2 * rows * width"
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRoot:
    """A run root with one problem that differs by workload in all that is shown."""
    made = make_root(tmp_path / "root")
    changed = definition(description="Scales\x1b[2J its rows")
    changed["inputs"]["weight"]["description"] = "gain"
    lines = [
        workload(uuid="few", axes={"rows": 4800}),
        workload(uuid="many", axes={"rows": 48000}, tolerance={"max_error_cap": 2}),
    ]
    files = problem_files(
        definition_json=encoded(changed),
        problem_toml=SETTINGS,
        workload_jsonl=b"\n".join(map(encoded, lines)),
    )
    del files["workload.cpu.jsonl"]
    for name, data in files.items():
        path = made.problem("scale_rows") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    monkeypatch.chdir(made.path)
    return made


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["problems", "show", "scale_rows", *arguments]) == 0
    return capsys.readouterr().out


def put_on_file(root: RunRoot) -> None:
    """Store a baseline, and verdicts of which one is the best of those that count."""
    problem = load_problem(root.problem("scale_rows"))
    versions = {"torch": "2.13"}
    contenders = (
        Contender("eager", {"few": 4.0, "many": 10.0}, versions),
        Contender("compile", {"few": 2.0, "many": 20.0}, versions),
    )
    baseline = Baseline("scale_rows", H200, files_hash(problem.files), JUDGE_VERSION, 1.0, contenders)
    save_baseline(root, baseline)
    epoch = epoch_hash({**problem.files, "COORDINATION.md": root.coordination.read_bytes()})
    here = replace(ENVIRONMENT, device_model=H200)
    records = [
        ("slow", 3.0, {}),
        ("best", 0.5, {}),
        ("elsewhere", 0.1, {"environment": ENVIRONMENT}),
        ("other-files", 0.1, {"epoch": "e1"}),
        ("old-judge", 0.1, {"judge_version": JUDGE_VERSION - 1}),
        ("wrong", 0.1, {"status": Status.INCORRECT_NUMERICAL}),
    ]
    for name, factor, changes in records:
        status = changes.get("status", Status.PASSED)
        times = {"few": factor, "many": 10 * factor} if status is Status.PASSED else {}
        fields = {"epoch": epoch, "environment": here, "status": status, "language": "cuda"} | changes
        results = tuple(WorkloadResult(uuid, status, time_us=times.get(uuid)) for uuid in ("few", "many"))
        one = verdict("scale_rows", name, key=name, commit=name * 10, workloads=results, **fields)
        with Ledger(root.run("first" if name == "best" else "second")) as ledger:
            assert ledger.record(one)


def test_a_problem_is_shown_as_one_would_write_it_down(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(capsys, "--device-model", H200)
    assert out.startswith(
        "scale_rows\n"
        "Scales [2J its rows\n"
        "somebody's model; elementwise, seeds: none\n"
        "\n"
        "scale_rows(\n"
        "    x: bfloat16[rows, width]  drawn from normal(0, 2)\n"
        "    weight: bfloat16[width]   gain\n"
        "    scale: float32 scalar\n"
        ") -> (\n"
        "    y: bfloat16[rows, width]\n"
        ")\n"
        "where\n"
        "    rows varies          tokens\n"
        "    width = 64\n"
        "    half = width // 2\n"
        "    cells = rows * half\n"
        "\n"
        "|got - expected| <= 0.001 + 0.25 * |expected| for 99 % of each output's elements (workload few)\n"
        "|got - expected| <= 0.001 + 0.25 * |expected| for 99 % of each output's elements, and 2 at most "
        "(workload many)\n"
        "expected is the result of reference.py in the next wider float type\n"
    )
    assert out.endswith(
        "\n\nimport torch\n\ndef run(x, weight, scale):\n    return (x * weight * scale).to(x.dtype)\n"
    )


def test_what_is_known_on_a_device_stands_beside_each_workload(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    put_on_file(root)
    lines = [" ".join(line.split()) for line in shown(capsys, "--device-model", H200).splitlines()]
    at = lines.index("workload on nvidia-h200 rows cells scale T_SOL µs T_b µs best µs of limit")
    # 2 * 4800 * 64 elements of two bytes and the weight, at 4.8 TB/s
    assert lines[at + 1 : at + 7] == [
        "few 4800 153600 0.5 0.256 2 0.5 51 %",
        "many 48000 1536000 0.5 2.56 10 5 51 %",
        "",
        "T_b: compile, eager",
        "best: commit bestbestbe of run first, cuda, by its verdict alone",
        "",
    ]


def test_what_is_not_known_is_said(root: RunRoot, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--device-model", H200)
    assert "T_b has not been measured; type: swarm baseline scale_rows\n" in out
    assert "no run here has a passing verdict on these files\n" in out
    put_on_file(root)
    (root.problem("scale_rows") / "fast_reference.py").write_text("def run(x, weight, scale): ...\n")
    out = shown(capsys, "--device-model", H200)
    assert "T_b is of other files or an older judge; type: swarm baseline scale_rows\n" in out
    assert "no run here has a passing verdict on these files\n" in out
    assert "expected is the result of fast_reference.py, lint's equal of reference.py in" in out
    root.baseline(H200, "scale_rows").write_text("{}")
    assert "T_b is not known: " in shown(capsys, "--device-model", H200)


def test_without_workloads_for_the_device_the_problem_is_shown_all_the_same(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [" ".join(line.split()) for line in shown(capsys, "--device", "cpu").splitlines()]
    assert "workload on a GPU rows cells scale" in lines and "few 4800 153600 0.5" in lines
    assert (
        "problem 'scale_rows' has no workloads for a cpu; --device-model nvidia-h200 shows what is known on "
        "such a GPU"
    ) in lines


def test_json_holds_all_that_is_shown(root: RunRoot, capsys: pytest.CaptureFixture[str]) -> None:
    put_on_file(root)
    found = json.loads(shown(capsys, "--device-model", H200, "--json"))
    assert found["definition"]["inputs"]["x"]["shape"] == ["rows", "width"]
    assert found["limits"]["many"]["max_error_cap"] == 2
    known = found["known"]
    assert known["t_sol_us"]["few"] == pytest.approx((2 * 4800 * 64 * 2 + 128) / 4.8e6)
    assert (known["t_b_us"], known["t_b_by"]) == (
        {"few": 2.0, "many": 10.0},
        {"few": "compile", "many": "eager"},
    )
    assert known["best_us"] == {"few": 0.5, "many": 5.0}
    assert known["best"]["run"] == "first" and known["best"]["tree"] == "best"
