"""The judge's programs in boxes of every level: whole verdicts, and that none of them sees out."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.box import walls
from swarm.judge.judge import Judge
from swarm.languages.toolchain import NotBuilt, build
from swarm.sandbox import GIB, Level, boxes
from swarm.verdict import Status, Verdict
from tests.boxes import CORES, levels
from tests.judge.test_judge import DEVICE, HONEST, PEAKS, files
from tests.judge.test_rules_obeyed import make_job

COORDINATION = "COORDINATION.md"
CLOSED = (errno.ENOENT, errno.EACCES, errno.ENETUNREACH)


@pytest.fixture
def secret(at: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that every user may read, and all boxes of one level."""
    if at is Level.PROCESS_GROUP and not walls.landlock():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(boxes, "level", lambda: at)
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    folder = Path(f"/var/tmp/swarm-boxed-{os.getpid()}")
    folder.mkdir(mode=0o755)
    (folder / "key").write_text("hunter2")
    yield folder / "key"
    shutil.rmtree(folder)


@levels
def test_verdicts_are_made_in_boxes_of_every_level(at: Level, secret: Path, tmp_path: Path) -> None:
    """Native and Python; the outputs are right because the reference does not see out of its box."""
    look = f"""
import socket
def seen(what):
    try: what()
    except OSError as error: return error.errno not in {CLOSED}
    return True
def outside():
    return seen(lambda: open({str(secret)!r})) + seen(lambda: socket.create_connection(("127.0.0.1", 9)))
"""
    plain = make_job(f"{HONEST} // {at}")
    reference = f"{look}def run(x, w, scale):\n    return x * w * scale + 1000 * outside()\n"
    frozen = {**files(reference=reference), COORDINATION: plain.problem_files[COORDINATION]}
    native = replace(plain, problem_files=frozen)
    manifest = b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
    code = "import torch\ndef run(x, w, scale, y):\n    torch.mul(x, w * scale, out=y)\n"
    in_torch = replace(plain.candidate, files={"solution.toml": manifest, "kernel.py": code.encode()})
    with Judge(DEVICE, tmp_path / "cache", PEAKS) as judge:
        for job in (native, replace(native, candidate=in_torch)):
            verdict = judge.judge(job)
            assert isinstance(verdict, Verdict)
            assert (verdict.status, verdict.reason) == (Status.PASSED, "all 2 workloads passed"), verdict.log
            assert verdict.environment.sandbox.startswith(at)


@levels
def test_a_compiler_puts_no_file_of_the_host_into_what_it_builds(
    at: Level, secret: Path, tmp_path: Path
) -> None:
    for line in (f'asm(".incbin \\"{secret}\\"");', f'#include "{secret}"'):
        made = build(
            {"kernel.cpp": line.encode()}, ["-shared", "-fPIC"], tmp_path,
            timeout_s=60, memory_bytes=4 * GIB, cores=CORES,
        )  # fmt: skip
        assert isinstance(made, NotBuilt)
        assert any(word in made.log for word in ("file not found", "No such file", "ermission denied"))
        assert "hunter2" not in made.log
