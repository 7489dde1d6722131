"""Locks between processes of one host: flock, so the kernel frees them when their holder dies.

A lock file is never unlinked (two processes could then each hold "the" lock). Beside it an owner file
says who holds it, for messages only: the flock decides. A process must not fork while it holds one.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from swarm.durable import write_atomic
from swarm.errors import Refused

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock; the start token tells a process from a later one with the same pid."""

    host: str
    pid: int
    start: str
    purpose: str
    since_s: float


@contextmanager
def held(path: Path, *, timeout_s: float, purpose: str) -> Iterator[None]:
    """Hold the lock at `path` for the body; Refused, naming the owner, if it is not free in time."""
    from filelock import FileLock, Timeout  # 30 ms that commands without a lock should not pay

    path.parent.mkdir(parents=True, exist_ok=True)
    # Not a singleton, not re-entrant: taking a lock twice in one process is a bug that must show.
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=POLL_S)
    except (Timeout, RuntimeError):  # RuntimeError: this very thread holds it through another object
        raise _refusal(path, timeout_s, purpose) from None
    try:
        write_atomic(_owner_path(path), json.dumps(asdict(_me(purpose))).encode())
        yield
    finally:
        with suppress(FileNotFoundError):
            _owner_path(path).unlink()
        lock.release()


@contextmanager
def held_all(paths: Iterable[Path], *, timeout_s: float, purpose: str) -> Iterator[None]:
    """Hold several locks, taken in sorted order so that two holders of several cannot block each other."""
    with ExitStack() as stack:
        for path in sorted(set(paths)):
            stack.enter_context(held(path, timeout_s=timeout_s, purpose=purpose))
        yield


def owner(path: Path) -> Owner | None:
    """Return who last said it holds `path`; None if nobody does or the note cannot be read."""
    try:
        raw = json.loads(_owner_path(path).read_bytes())
        return Owner(
            str(raw["host"]), int(raw["pid"]), str(raw["start"]), str(raw["purpose"]), float(raw["since_s"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_alive(owner: Owner) -> bool:
    """Say whether `owner` may still run; only proof of death makes it False."""
    if owner.host != socket.gethostname():
        return True
    return start_token(owner.pid) == owner.start


def start_token(pid: int) -> str | None:
    """Name one life of a process, across pid reuse and reboots; None if it is gone or a zombie."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = line.rpartition(")")[2].split()  # the command's name may hold spaces and parentheses
    if fields[0] in ("Z", "X"):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[19]}"


def device_lock_path(uuid: str) -> Path:
    """Return the lock of one device, the same for every run of this user on this host.

    The folder does not depend on the login session (XDG_RUNTIME_DIR differs between ssh and cron, and two
    folders would be no lock at all); SWARM_DEVICE_LOCKS overrides it.
    """
    default = f"/tmp/swarm-devices-{os.getuid()}"
    folder = Path(os.environ.get("SWARM_DEVICE_LOCKS") or default)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Refused(
            "the folder of the device locks is not a folder that only this user can write",
            where=str(folder),
            remedy="remove it, or set SWARM_DEVICE_LOCKS to another one",
        )
    return folder / (re.sub(r"[^A-Za-z0-9.-]", "_", uuid) + ".lock")


def _owner_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".lock") + ".owner.json")


def _me(purpose: str) -> Owner:
    token = start_token(os.getpid())
    assert token is not None, "this process runs"
    return Owner(socket.gethostname(), os.getpid(), token, purpose, time.time())


def _refusal(path: Path, timeout_s: float, purpose: str) -> Refused:
    holder = owner(path)
    if holder is None or not is_alive(holder):
        who = "a process that has not said who it is"
    else:
        who = (
            f"process {holder.pid} on {holder.host} ({holder.purpose}, {time.time() - holder.since_s:.0f} s)"
        )
    waited = f"waited {timeout_s:g} s to {purpose}, but" if timeout_s else f"{purpose} cannot begin:"
    return Refused(
        f"{waited} the lock is held by {who}",
        where=str(path),
        remedy="wait for it or stop it",
    )
