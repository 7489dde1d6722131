"""Two processes never hold one lock; a dead one never keeps it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.locks import Owner, device_lock_path, held, held_all, is_alive, owner, start_token

HOLDER = """
import sys, time
from pathlib import Path
from swarm.locks import held
with held(Path(sys.argv[1]), timeout_s=10, purpose="hold on"):
    print("held", flush=True)
    time.sleep(600)
"""

COUNTER = """
import sys
from pathlib import Path
from swarm.locks import held
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(40):
    with held(lock, timeout_s=60, purpose="count"):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def start_holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=10)


def test_lock_held_elsewhere_refuses_and_names_its_owner(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    holder = start_holder(lock)
    try:
        with pytest.raises(Refused) as caught, held(lock, timeout_s=0.1, purpose="try it"):
            pass
    finally:
        end(holder)
    assert f"process {holder.pid} on {socket.gethostname()} (hold on" in str(caught.value)
    assert "waited 0.1 s to try it" in str(caught.value)


def test_who_does_not_wait_is_not_said_to_have_waited(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with (
        held(lock, timeout_s=1, purpose="swarm run"),
        pytest.raises(Refused, match=r"x\.lock: swarm run cannot begin: the lock is held by process \d+ on"),
        held(lock, timeout_s=0, purpose="swarm run"),
    ):
        pass


def test_lock_of_a_killed_process_is_free_at_once_and_its_file_stays(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    holder = start_holder(lock)
    inode = lock.stat().st_ino
    dead = owner(lock)
    assert dead is not None
    assert is_alive(dead)
    holder.send_signal(signal.SIGKILL)
    end(holder)
    assert not is_alive(dead)
    with held(lock, timeout_s=5, purpose="take over"):
        mine = owner(lock)
        assert mine is not None
        assert mine.pid == os.getpid()
    assert lock.stat().st_ino == inode
    assert owner(lock) is None


def test_stopped_holder_keeps_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    holder = start_holder(lock)
    holder.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Refused), held(lock, timeout_s=0.2, purpose="steal"):
            pass
    finally:
        end(holder)


def test_racing_processes_lose_no_update(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    argv = [sys.executable, "-c", COUNTER, str(tmp_path / "x.lock"), str(counter)]
    racers = [subprocess.Popen(argv) for _ in range(3)]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0, 0]
    assert counter.read_text() == "120"


def test_taking_a_lock_twice_in_one_process_is_refused_not_a_deadlock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with held(lock, timeout_s=1, purpose="outer"), pytest.raises(Refused, match="outer"):  # noqa: SIM117
        with held(lock, timeout_s=0.1, purpose="inner"):
            pass


def test_threads_exclude_each_other_too(tmp_path: Path) -> None:
    lock, inside, seen = tmp_path / "x.lock", [0], []

    def work() -> None:
        for _ in range(10):
            with held(lock, timeout_s=30, purpose="thread"):
                inside[0] += 1
                seen.append(inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert seen == [1] * 40


def test_several_locks_are_taken_in_sorted_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a.lock", tmp_path / "b.lock"
    holder = start_holder(a)
    try:
        with pytest.raises(Refused, match=r"a\.lock"), held_all([b, a], timeout_s=0.1, purpose="both"):
            pass
        with held(b, timeout_s=0.1, purpose="b was never taken"):
            pass
    finally:
        end(holder)


def note(lock: Path, **changes: object) -> None:
    raw = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "start": start_token(os.getpid()),
        "purpose": "p",
        "since_s": 1.0,
    }
    lock.with_name("x.owner.json").write_text(json.dumps({**raw, **changes}))


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        pytest.param({}, True, id="this very process"),
        pytest.param({"start": "another-boot:1"}, False, id="recycled pid"),
        pytest.param({"pid": 2**22 + 1}, False, id="dead pid"),
        pytest.param({"host": "elsewhere", "pid": 2**22 + 1}, True, id="another host cannot be proven dead"),
    ],
)
def test_only_proof_of_death_makes_an_owner_dead(
    tmp_path: Path, changes: dict[str, object], alive: bool
) -> None:
    note(tmp_path / "x.lock", **changes)
    found = owner(tmp_path / "x.lock")
    assert isinstance(found, Owner)
    assert is_alive(found) is alive


def test_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_token(child.pid) is None
    child.wait(timeout=10)


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"host": 1}', b"\xff\xfe"])
def test_unreadable_owner_note_changes_nothing(tmp_path: Path, garbage: bytes) -> None:
    lock = tmp_path / "x.lock"
    lock.with_name("x.owner.json").write_bytes(garbage)
    assert owner(lock) is None
    with held(lock, timeout_s=1, purpose="go on"):
        pass


def test_device_locks_live_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "devices"))
    path = device_lock_path("GPU-1/../x y")
    assert path == tmp_path / "devices" / "GPU-1_.._x_y.lock"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["symlink", "world-writable"])
def test_planted_device_folder_is_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "devices"
    if kind == "symlink":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(folder))
    with pytest.raises(Refused, match="device locks"):
        device_lock_path("gpu")
