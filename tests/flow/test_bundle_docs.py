"""docs/bundle.md is true: its commands are run in order, here and on a bare host, with a CPU for the GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.device import cpu_device
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.verdict import Status
from tests.flow.test_bundle import BLOCKER, blocked
from tests.problem_files import write_double
from tests.support import REPOSITORY
from tests.test_readme import blocks

AS_RUN_HERE = {
    "nvidia-h200": cpu_device().model,
    "--language cuda": "--language cpp",
    "--minutes 1": "--minutes 0.25",
    "rmsnorm_residual": "double",
}
PROBLEM = "double"


@pytest.mark.timeout(600)
def test_what_the_page_says_is_what_happens(tmp_path: Path) -> None:
    root, away = RunRoot(tmp_path / "root"), tmp_path / "root" / "away"
    assert cli.main(["init", str(root.path)]) == 0
    root.config.write_text('[run]\nname = "t"\nworkers = 1\n[budget]\nbaseline_s = 5\n')
    write_double(root.problem(PROBLEM))
    away.mkdir()
    shutil.copytree(REPOSITORY / "swarm", away / "swarm", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks("docs/bundle.md"):
        for line in block.text.splitlines():
            _run(line, away if block.path == "there" else root.path, tmp_path, is_bare=block.path == "there")
    paths = root.run("t")
    with Hub(paths) as hub, Ledger(paths) as ledger:
        passed = [v for v in ledger.verdicts(PROBLEM) if v.status is Status.PASSED]
        assert len(passed) >= 2, "the seed and an attempt"
        merges = [s for s in hub.commits(PROBLEM) if s.branch is None][1:]
        assert merges, "the seed is the slowest, so the first bundle brings a merge"
        assert len(hub.commits(PROBLEM)) > len(passed), "the workers went on"


def _run(line: str, folder: Path, scratch: Path, *, is_bare: bool) -> None:
    for there, here in AS_RUN_HERE.items():
        line = line.replace(there, here)
    programs = scratch / ("bare" if is_bare else "bin")
    if not programs.exists():
        programs.mkdir()
        _write(programs / "python", f'exec "{sys.executable}" "$@"')
        if is_bare:
            (programs / "sitecustomize.py").write_text(BLOCKER.format(blocked=blocked()))
        else:
            _write(programs / "swarm", f'exec "{sys.executable}" -m swarm.cli.main "$@"')
    environment = {
        "PATH": f"{programs}{os.pathsep}/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(programs if is_bare else REPOSITORY),
        "SWARM_DEVICE_LOCKS": str(scratch / "locks"),
        "HOME": str(scratch),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def _write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
