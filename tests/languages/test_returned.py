"""A tree whose entry returns its outputs is built for a GPU, and refused where outputs are passed only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swarm.device import cpu_device
from swarm.judge.build import Built, build
from swarm.languages.protocol import Failure
from swarm.verdict import Status
from tests.gpu import trees


def test_returned_outputs_are_for_gpus(tmp_path: Path) -> None:
    rules = trees.frozen(trees.problem("rmsnorm"))
    built = build(trees.solution("rmsnorm/triton_returns"), rules, trees.ABSENT_H200, tmp_path)
    assert isinstance(built, Built)
    assert built.artifact.returns_outputs and not built.artifact.converts_outputs
    passed = build(trees.solution("rmsnorm/triton"), rules, trees.ABSENT_H200, tmp_path)
    assert isinstance(passed, Built) and not passed.artifact.returns_outputs


def test_on_a_cpu_they_are_passed(tmp_path: Path) -> None:
    files = {
        "solution.toml": b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
        b"destination_passing = false\n",
        "kernel.py": b"import torch\n\ndef run(hidden_states, weight):\n    return hidden_states * weight\n",
    }
    rules = trees.frozen(trees.problem("rmsnorm"))
    failed = build(files, rules, cpu_device(), tmp_path)
    assert isinstance(failed, Failure) and failed.status is Status.INVALID_SOLUTION
    assert failed.reason.startswith("destination_passing = false: on a CPU")
    built = build(files, rules, replace(trees.ABSENT_H200), tmp_path)
    assert isinstance(built, Built) and built.artifact.returns_outputs
