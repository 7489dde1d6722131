"""A run root to import into, the command as a person types it, and a judge for what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from swarm.cli.main import main
from swarm.contents import files_hash
from swarm.device import cpu_device
from swarm.job import Job, Purpose, Tree
from swarm.judge.judge import Judge
from swarm.layout import RunRoot
from swarm.problem import Problem, load_problem
from swarm.sol import Peaks
from swarm.verdict import Verdict
from tests.support import REPOSITORY

DEVICE = cpu_device()
PEAKS = Peaks(DEVICE.model, 1e4, {"float32": 1e7}, "generous, for tests")


@dataclass(frozen=True, slots=True)
class Said:
    """What `swarm problems import --json` printed, and how it ended."""

    code: int
    out: dict[str, Any]
    error: str

    @property
    def outcomes(self) -> dict[str, str]:
        return {item["name"]: item["outcome"] for item in self.out["imported"]}

    @property
    def left_out(self) -> dict[str, str]:
        return {item["where"]: item["error"] for item in self.out["left_out"]}

    @property
    def remarks(self) -> dict[str, tuple[int, int]]:
        return {item["text"]: (item["problems"], item["places"]) for item in self.out["remarks"]}


class Importer:
    """A run root, and imports into it."""

    def __init__(self, path: Path) -> None:
        (path / "problems").mkdir(parents=True)
        for name in ("COORDINATION.md", "swarm.toml"):
            (path / name).write_bytes((REPOSITORY / name).read_bytes())
        self.root = RunRoot(path)

    def __call__(self, source: Path, *options: str) -> Said:
        code, out, error = self._import(source, "--json", *options)
        return Said(code, json.loads(out) if out else {}, error)

    def text(self, source: Path, *options: str) -> str:
        return self._import(source, *options)[1]

    def _import(self, source: Path, *options: str) -> tuple[int, str, str]:
        out, error = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            code = main(["--root", str(self.root.path), "problems", "import", str(source), *options])
        return code, out.getvalue(), error.getvalue()

    def problem(self, name: str) -> Problem:
        return load_problem(self.root.problem(name))

    def content(self) -> dict[str, bytes]:
        """Return every file below problems/."""
        return {
            path.relative_to(self.root.problems).as_posix(): path.read_bytes()
            for path in sorted(self.root.problems.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def into(tmp_path: Path) -> Importer:
    return Importer(tmp_path / "root")


@pytest.fixture(scope="module")
def _judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    cores = os.sched_getaffinity(0)
    with Judge(DEVICE, tmp_path_factory.mktemp("cache"), PEAKS) as made:
        yield made
    os.sched_setaffinity(0, cores)


class Bench:
    """Measures a problem's seed, briefly."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        text = (REPOSITORY / "COORDINATION.md").read_text(encoding="utf-8")
        self._protocol = text.replace("\nbudget_s = 0.6 ", "\nbudget_s = 0.02").encode()
        assert self._protocol != text.encode()

    def __call__(self, problem: Problem) -> Verdict:
        [seed] = problem.seeds.values()
        files = {**problem.files, "COORDINATION.md": self._protocol}
        tree = Tree("a" * 40, "b" * 40, seed)
        return self._judge.verdict(Job("k1", Purpose.VERDICT, problem.name, files_hash(files), files, tree))


@pytest.fixture
def bench(_judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    return Bench(_judge)


def write_problem(folder: Path, definition: object, workloads: Sequence[object]) -> None:
    """Write a problem as SOL-ExecBench has it."""
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(definition), encoding="utf-8")
    lines = "".join(f"{json.dumps(workload)}\n" for workload in workloads)
    (folder / "workload.jsonl").write_text(lines, encoding="utf-8")
