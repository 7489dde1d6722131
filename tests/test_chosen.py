"""A pattern takes the problems that a command can work on; one that is named and cannot be is said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.cli.context import load_chosen
from swarm.cli.devices import Choice
from swarm.cli.run import _fitting
from swarm.device import Device, cpu_device
from swarm.errors import BadInput
from swarm.layout import RunRoot
from tests.problem_files import write_double
from tests.suite.shipped import NAMES, PROBLEMS, SEVEN, seeded

GPU = Device("cuda", "nvidia-h200", "GPU-1", (1,))
SHIPPED = RunRoot(PROBLEMS.parent)


@pytest.fixture
def root(tmp_path: Path) -> RunRoot:
    """Of its problems one is for both devices, one has no CPU workloads, one no seed for a CPU."""
    root = RunRoot(tmp_path)
    for name in ("both", "large", "unseeded"):
        write_double(root.problem(name))
    (root.problem("large") / "workload.cpu.jsonl").unlink()
    (root.problem("unseeded") / "seed" / "cpp").rename(root.problem("unseeded") / "seed" / "triton")
    return root


def fitting(root: RunRoot, language: str, device: Device, *patterns: str) -> tuple[str, ...]:
    names = sorted(path.name for path in root.problems.iterdir())
    choice = Choice([device], device.model, language, "")
    return _fitting(root, [name for name in names if name in patterns or "*" in patterns], patterns, choice)


def test_a_run_takes_what_has_a_seed_in_its_language_and_workloads_for_its_device(root: RunRoot) -> None:
    assert fitting(root, "cpp", cpu_device(), "*") == ("both",)
    assert fitting(root, "cpp", cpu_device(), "*", "large") == ("both", "large"), "it was named"
    assert fitting(root, "triton", GPU, "*") == ("unseeded",)
    with pytest.raises(BadInput, match=r"no problem has a seed in cuda and workloads for a cuda; add seed/"):
        fitting(root, "cuda", GPU, "*")


def test_a_broken_problem_is_not_left_out_in_silence(root: RunRoot) -> None:
    (root.problem("both") / "definition.json").write_text("{")
    (root.problem("unseeded") / "workload.jsonl").unlink()
    assert fitting(root, "cpp", cpu_device(), "*") == ("both",)
    assert fitting(root, "triton", GPU, "*") == ("unseeded",)


def test_without_names_a_command_takes_what_has_workloads_for_its_device(root: RunRoot) -> None:
    problems, broken = load_chosen(root, (), cpu_device())
    assert ([problem.name for problem in problems], broken) == (["both", "unseeded"], [])
    problems, broken = load_chosen(root, (), GPU)
    assert ([problem.name for problem in problems], broken) == (["both", "large", "unseeded"], [])


def test_what_is_named_and_has_none_is_one_line(root: RunRoot) -> None:
    problems, broken = load_chosen(root, ("both", "large"), cpu_device())
    assert [problem.name for problem in problems] == ["both"]
    line = "large/workload.cpu.jsonl: problem 'large' has no workloads for a cpu; add the file"
    assert [str(error) for error in broken] == [line]


def test_a_swarm_without_a_gpu_works_on_the_same_seven_problems() -> None:
    assert fitting(SHIPPED, "cpp", cpu_device(), "*") == SEVEN
    assert fitting(SHIPPED, "cuda", GPU, "*") == tuple(seeded("cuda")) == tuple(NAMES)
