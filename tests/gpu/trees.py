"""The problems and solution trees beside this file, as jobs for a judge. Needs no GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from swarm.device import Device
from swarm.job import Job, Purpose, Tree
from swarm.judge.build import Frozen
from swarm.problem import Problem, load_problem
from swarm.protocol import load_protocol

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOLUTIONS = sorted(f"{path.parent.name}/{path.name}" for path in (HERE / "solutions").glob("*/*"))
"""`problem/language` or `problem/language_what`."""
BAD = sorted(path.name for path in (HERE / "bad").iterdir())
ABSENT_H200 = Device(
    "cuda", "nvidia-h200", "absent", (0,), arch="sm_90a", memory_bytes=141 * 10**9, multiprocessors=132
)
"""What a compiler needs to know of a GPU that is not here."""


def problem(name: str) -> Problem:
    return load_problem(HERE / "problems" / name)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a solution/ folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def solution(name: str) -> dict[str, bytes]:
    return tree(HERE / "solutions" / name)


def bad(name: str) -> dict[str, bytes]:
    return tree(HERE / "bad" / name)


def coordination(**changes: object) -> str:
    """Return COORDINATION.md with these numbers of its toml blocks replaced."""
    text = (ROOT / "COORDINATION.md").read_text()
    for name, value in changes.items():
        text, count = re.subn(rf"(?m)^{name} = [^#\n]*", f"{name} = {value}  ", text)
        assert count == 1, f"{name} stands {count} times in COORDINATION.md"
    return text


def frozen(of: Problem, **changes: object) -> Frozen:
    """Return what an epoch of a problem would fix."""
    return Frozen(of, load_protocol(coordination(**changes), "COORDINATION.md"))


def job(
    of: Problem,
    candidate: Mapping[str, bytes],
    champion: Mapping[str, bytes] | None = None,
    name: str = "job",
    **changes: object,
) -> Job:
    """Return a verdict's job, or a comparison's; `changes` are numbers of COORDINATION.md."""
    files = {**of.files, "COORDINATION.md": coordination(**changes).encode()}
    epoch = f"{of.name}-{sorted(changes.items())}"
    trees = [
        None if one is None else Tree(f"{name}-{side}", "0" * 40, dict(one))
        for side, one in (("candidate", candidate), ("champion", champion))
    ]
    assert trees[0] is not None
    purpose = Purpose.VERDICT if champion is None else Purpose.COMPARISON
    return Job(name, purpose, of.name, epoch, files, trees[0], trees[1])
