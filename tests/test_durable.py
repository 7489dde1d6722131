"""Files are wholly there or not there."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm.durable import ABANDONED_AFTER_S, create_only, sweep, write_atomic
from swarm.errors import Refused

WRITER = """
import os, sys
from pathlib import Path
from swarm.durable import create_only, write_atomic
folder, first = Path(sys.argv[1]), int(sys.argv[2])
for number in range(first, 10**9):
    payload = f"{number:012d}".encode() * 5000
    assert create_only(folder / f"{number}.json", payload)
    write_atomic(folder / "latest", payload)
    os.write(1, f"{number}\\n".encode())
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_file_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file"
    write_atomic(target, b"old")
    write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert names(target.parent) == ["file"]


def test_second_creation_keeps_the_first_content(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    assert create_only(target, b"first")
    assert not create_only(target, b"second")
    assert target.read_bytes() == b"first"
    assert names(tmp_path) == ["record.json"]


def test_of_many_creators_exactly_one_wins(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from swarm.durable import create_only\n"
        "sys.stdin.readline()\n"
        "print(sum(create_only(Path(sys.argv[1]) / str(n), sys.argv[2].encode()) for n in range(100)))"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(wins) == 100
    assert len(names(tmp_path)) == 100


def test_killed_writer_leaves_only_whole_files_and_every_acknowledged_one(tmp_path: Path) -> None:
    number = 0
    for round_ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(number)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() != ""
        time.sleep(0.0007 * round_)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.stdout.close()
        writer.wait(timeout=10)
        acknowledged = int(rest[-1]) if rest else number
        present = {int(p.stem) for p in tmp_path.glob("*.json")}
        assert present >= set(range(acknowledged + 1))
        for path in (*tmp_path.glob("*.json"), tmp_path / "latest"):
            content = path.read_bytes()
            assert len(content) == 60_000
            assert content == content[:12] * 5000
        number = max(present) + 1


@pytest.mark.parametrize("write", [write_atomic, create_only])
def test_full_disk_refuses_by_name_and_leaves_nothing(
    tmp_path: Path, write: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, "No space left on device")

    def fsync(_fd: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(Refused, match=r"x\.json: cannot write: No space left on device; free some space"):
        write(tmp_path / "x.json", b"data")  # type: ignore[operator]
    assert names(tmp_path) == []


def test_partly_written_file_is_removed_when_the_size_limit_hits(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(OSError, match="too large"):
            write_atomic(tmp_path / "x", b"y" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert names(tmp_path) == []


def test_folder_that_cannot_be_written_refuses_by_name() -> None:
    # /proc refuses new files to root too, which a mode bit would not
    with pytest.raises((Refused, FileNotFoundError)) as caught:
        write_atomic(Path("/sys/kernel/x.json"), b"data")
    assert isinstance(caught.value, Refused)
    assert "/sys/kernel/x.json" in str(caught.value)


def test_sweep_removes_only_old_temporary_files(tmp_path: Path) -> None:
    old, young, other = tmp_path / ".tmp-a.part", tmp_path / ".tmp-b.part", tmp_path / "c.json"
    for path in (old, young, other):
        path.write_bytes(b"")
    past = time.time() - ABANDONED_AFTER_S - 10
    os.utime(old, (past, past))
    os.utime(other, (past, past))
    sweep(tmp_path)
    assert names(tmp_path) == [".tmp-b.part", "c.json"]
