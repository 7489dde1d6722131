"""Problems that are wrong in what only running them shows: one line each, and the others are still tried."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.cli import main as cli
from swarm.layout import RunRoot
from tests.problem_files import write_double
from tests.support import make_root

REPOSITORY = Path(__file__).parent.parent
MAKE = "import torch\ndef run(x):\n    return 2 * x\ndef make(axes, device):\n    return "


def write(
    root: RunRoot,
    name: str,
    *,
    reference: str | None = None,
    dtype: str = "float32",
    size: int = 64,
    custom: bool = False,
) -> None:
    """Write a problem that doubles its input, but for what is given; it has no seed."""
    folder = root.problems / name
    write_double(folder)
    for path in (folder / "seed" / "cpp").iterdir():
        path.unlink()
    definition: dict[str, Any] = json.loads((folder / "definition.json").read_text())
    workload: dict[str, Any] = json.loads((folder / "workload.jsonl").read_text())
    definition["inputs"]["x"]["dtype"] = definition["outputs"]["y"]["dtype"] = dtype
    workload["axes"]["n"] = size
    if custom:
        definition["custom_inputs_entrypoint"] = "make"
        workload["inputs"] = {"x": {"type": "custom"}}
    (folder / "definition.json").write_text(json.dumps(definition))
    for file in ("workload.jsonl", "workload.cpu.jsonl"):
        (folder / file).write_text(json.dumps(workload))
    if reference is not None:
        (folder / "reference.py").write_text(reference)


UNUSABLE = "workload w1: the reference is unusable: "
DISAGREE = {
    "short": ("x[:-1]", "short/reference.py: run: y has shape [63], definition.json says [64]"),
    "two": ("x, x", "two/reference.py: run: 2 results, definition.json says 1: y"),
    "other": ("{'z': x}", "other/reference.py: run: no 'y' is among what it returned: z"),
    "text": ("'x'", "text/reference.py: run: y is a str, not a tensor"),
}
MADE = {
    "raises": ("{}['seed']", "raises/reference.py line 5: KeyError: 'seed'"),
    "nothing": ("None", "nothing/reference.py: make: it returned nothing, not a dict of the inputs x"),
    "list": ("[torch.ones(64)]", "list/reference.py: make: it returned a list, not a dict of the inputs x"),
    "lacks": ("{'z': 1}", "lacks/reference.py: make: no 'x' is among what it returned: z"),
    "shape": ("{'x': torch.ones(3)}", "shape/reference.py: make: x has shape [3], definition.json says [64]"),
    "whole": (
        "{'x': torch.arange(64)}",
        "whole/reference.py: make: x is int64, definition.json says float32",
    ),
    "word": ("{'x': 'abc'}", "word/reference.py: make: x is a str, not a tensor"),
}
NAMES = ("a..b", "a.lock", "Capital", "with space", "-option")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> RunRoot:
    """A run root with a problem for each mistake, and one without any."""
    made = make_root(tmp_path_factory.mktemp("bad") / "root")
    for name, (returned, _) in DISAGREE.items():
        write(made, name, reference=f"def run(x):\n    return {returned}\n")
    for name, (returned, _) in MADE.items():
        write(made, name, reference=f"{MAKE}{returned}\n", custom=True)
    for name in NAMES:
        write(made, name)
    write(made, "huge", size=10**12)
    write(made, "eight", reference="def run(x):\n    return x + x\n", dtype="float8_e4m3fn")
    write(made, "sound")
    return made


@pytest.fixture(scope="module")
def linted(root: RunRoot) -> dict[str, list[str]]:
    """What makes each problem broken, by `swarm problems lint`."""
    done = subprocess.run(
        [sys.executable, "-m", "swarm.cli.main", "problems", "lint", "--json"],
        capture_output=True, text=True, check=False, cwd=root.path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = {report["name"]: report for report in json.loads(done.stdout)}
    assert len(done.stderr.strip().splitlines()) == 1
    assert found.pop("sound")["state"] == "sound" and "sound," not in done.stderr
    assert {report["state"] for report in found.values()} == {"broken"}
    assert all(name in done.stderr for name in found)
    return {name: report["faults"] for name, report in found.items()}


@pytest.mark.parametrize("name", DISAGREE)
def test_a_reference_that_disagrees_with_its_shapes_is_one_line(
    name: str, linted: dict[str, list[str]]
) -> None:
    assert linted[name] == [UNUSABLE + DISAGREE[name][1]]


@pytest.mark.parametrize("name", MADE)
def test_an_entry_point_that_raises_or_returns_the_wrong_thing_is_one_line(
    name: str, linted: dict[str, list[str]]
) -> None:
    assert linted[name] == [UNUSABLE + MADE[name][1]]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_ref_is_one_line(name: str, linted: dict[str, list[str]]) -> None:
    remedy = "use lower-case letters, digits, '_' and single '-', at most 100 of them"
    assert linted[name] == [f"problem name {name!r} is not allowed; {remedy}"]


def test_an_operation_that_the_device_lacks_for_a_dtype_is_one_line(linted: dict[str, list[str]]) -> None:
    error = "NotImplementedError: \"add_stub\" not implemented for 'Float8_e4m3fn'"
    remedy = "convert it first, for example with .float()"
    assert linted["eight"] == [f"{UNUSABLE}eight/reference.py line 2: {error}; {remedy}"]


def test_a_workload_that_cannot_fit_in_memory_is_one_line_with_the_numbers(
    linted: dict[str, list[str]],
) -> None:
    [line] = linted["huge"]
    expected = (
        r"huge/workload\.cpu\.jsonl: workload w1: not tried: with axes n = 10{12} that may take \d{8,} MiB, "
        r"and \d+ MiB of memory are free; make it smaller"
    )
    assert re.fullmatch(expected, line), line


def test_a_judge_refuses_what_does_not_fit_and_names_the_workload(
    root: RunRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    solution = root.path / "solution"
    solution.mkdir()
    (solution / "solution.toml").write_text('language = "cpp"\nsources = ["kernel.cpp"]\n')
    (solution / "kernel.cpp").write_text(
        '#include "problem.h"\nextern "C" void run(const float* x, float* y, int64_t n) { y[0] = x[0]; }\n'
    )
    monkeypatch.chdir(root.path)
    assert cli.main(["bench", "huge", "--device", "cpu", "--solution", str(solution)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    expected = (
        r"swarm: huge could not be measured: huge: workload w1 with axes n = 10{12}: "
        r"buffers of \d{7,} MiB do not fit 85% of the \d+ MiB of free memory; .*"
    )
    assert re.fullmatch(expected, last), last
