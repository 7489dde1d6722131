"""The README is true: its files are written as they stand, and every command in it is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)\)")
COMMAND_TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: a file to write if it has a path, commands if it is sh."""

    language: str
    path: str
    text: str


def blocks(name: str = "README.md") -> list[Block]:
    return [Block(*found) for found in FENCE.findall((ROOT / name).read_text(encoding="utf-8"))]


def commands() -> list[str]:
    return [line for block in blocks() if block.language == "sh" for line in block.text.splitlines()]


AS_RUN_HERE = {
    # The same recipe, on one problem, with the interpreter of these tests instead of a new environment.
    "make swarm": "make swarm -o {venv}/.run VENV={venv} BIN={bin}"
    ' ARGS="--problems rmsnorm_residual --minutes 0.5"',
    # We are inside it: that it would call pytest is all that is left to see.
    "make test": "make -n test VENV={venv}",
    # Half the time tells as well whether it works.
    "swarm run --problems softcap --minutes 2": "swarm run --problems softcap --minutes 1",
}


@pytest.mark.timeout(600)
def test_everything_in_the_readme_works_as_written(tmp_path: Path) -> None:
    clone, programs = _clone(tmp_path / "clone"), _programs(tmp_path / "bin")
    here = clone
    for block in blocks():
        if block.path:
            (here / block.path).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for line in block.text.splitlines():
                if line.startswith("cd "):
                    here = here / line.removeprefix("cd ")
                else:
                    _run(line, here, programs)
    assert (clone / "results/local/report.html").is_file()
    assert (clone / "mine/results/local/scoreboard.json").is_file()


def test_the_readme_shows_its_two_commands_first() -> None:
    assert commands()[:2] == ["make swarm", "make test"]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/problems.md",
        "docs/measuring.md",
        "docs/bundle.md",
        "docs/operating.md",
        "docs/gpu.md",
        "docs/exchange.md",
        "docs/trust.md",
    ],
)
def test_links_lead_to_files_that_exist(name: str) -> None:
    folder = (ROOT / name).parent
    for target in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        if "://" not in target:
            assert (folder / target).exists(), f"{name}: {target}"


def _run(line: str, folder: Path, programs: Path) -> None:
    command = AS_RUN_HERE.get(line, line).format(venv=sys.prefix, bin=programs)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def _clone(folder: Path) -> Path:
    """Copy what git would clone of the working tree as it is."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)
    return folder


def _programs(folder: Path) -> Path:
    """Make `swarm` and `python` be those of these tests, installed or not."""
    folder.mkdir()
    for name, text in {
        "swarm": f'exec "{sys.executable}" -m swarm.cli.main "$@"',
        "python": f'exec "{sys.executable}" "$@"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder
