"""Run programs that are not trusted: in namespaces where the machine allows them, else in limits only.

A box has no network, no environment, an empty home, the system read-only, and nothing else of the host
but what the caller lists. Every wait here is bounded, and when a Process is closed all that it started is
gone. Left to others: what a kernel exploit can reach (no seccomp yet; a GPU's driver is a part of the
kernel), and the memory of a GPU.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm.errors import Refused

LAUNCHER = Path(__file__).with_name("sandbox_main.py")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/nix/store")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
GPU_FILES = ("/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module")
"""What a GPU's driver reads besides /proc."""
UIDS = range(61_184, 65_520)
"""One of these, at random, for each box when we are root: root's own process count has no limit."""
LOG_BYTES = 16_384
KILL_S = 10.0
DRAIN_READS = 64
LEFT_BEHIND = 2
"""Exit code of the launcher when its sweep found no end."""
GIB = 1 << 30


class Level(StrEnum):
    """How strong the box is; recorded with every result."""

    NAMESPACES = "namespaces"
    PROCESS_GROUP = "process-group"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one box may use. Memory is address space per process or, where a box has devices, what of it is
    private and writable: a GPU's driver reserves far more addresses than there is memory."""

    memory_bytes: int = 4 * GIB
    file_bytes: int = 0
    """Largest file that may be written; at 0 the first byte written to any file is fatal."""
    processes: int = 32
    """Processes and threads together."""
    open_files: int = 64
    cpu_s: int = 3600
    scratch_bytes: int = 64 << 20
    """Size of the private /tmp."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: one of the two is set."""

    code: int | None
    signal: str | None

    def __str__(self) -> str:
        return f"exit code {self.code}" if self.signal is None else self.signal

    @property
    def succeeded(self) -> bool:
        return self.code == 0


@dataclass(frozen=True, slots=True)
class Completed:
    """What `run` saw; `exit` is None if the time limit ended it."""

    exit: Exit | None
    output: str
    """The last LOG_BYTES of stdout and stderr together."""


class Tail:
    """The last bytes of a stream that may never end."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, data: bytes) -> None:
        self._bytes = (self._bytes + data)[-LOG_BYTES:]

    def __str__(self) -> str:
        return self._bytes.decode("utf-8", "replace")


class Process:
    """A program in its box; leaving the context kills all of it and proves it gone."""

    def __init__(
        self, popen: subprocess.Popen[bytes], leash: int, status_fd: int, scratch: Path | None
    ) -> None:
        self._popen = popen
        self._leash: int | None = leash
        self._status_fd = status_fd
        self._status = b""
        self._scratch = scratch
        self._log = Tail()
        assert popen.stdout is not None
        self.log_fd = popen.stdout.fileno()
        os.set_blocking(self.log_fd, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """The tail of what the program has printed so far."""
        if self._leash is not None:
            self._drain_all()
        return str(self._log)

    def drain(self) -> bool:
        """Take what is in the output pipe now, without waiting; False at its end."""
        try:
            data = os.read(self.log_fd, 65_536)
        except BlockingIOError:
            return True
        self._log.add(data)
        return bool(data)

    def wait(self, timeout_s: float) -> Exit | None:
        """Read output until the program and all it started have ended, or None after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        open_fds = [self.log_fd, self._status_fd]
        while self._status_fd in open_fds:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select(open_fds, [], [], max(0.0, left_s))
            if not ready or (left_s < 0 and self._status_fd not in ready):  # some print without an end
                return None
            if self.log_fd in ready and not self.drain():
                open_fds.remove(self.log_fd)
            if self._status_fd in ready:
                line = os.read(self._status_fd, 4096)
                self._status += line
                if not line:  # the launcher, too, has ended
                    open_fds.remove(self._status_fd)
        return self._exit()

    def close(self) -> None:
        """Kill the program and everything it started, and wait until that is gone."""
        if self._leash is None:
            return
        os.close(self._leash)
        self._leash = None
        try:
            left_behind = self._popen.wait(KILL_S) == LEFT_BEHIND
        except subprocess.TimeoutExpired:
            self._popen.kill()
            left_behind = True
        self._drain_all()
        self._popen.__exit__(None, None, None)
        os.close(self._status_fd)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if left_behind:
            raise Refused(
                f"processes of a sandbox outlive SIGKILL (launcher {self._popen.pid})",
                remedy="look for processes in state D; nothing can be measured until they are gone",
            )

    def _drain_all(self) -> None:
        """Take what is there, within bounds: some print faster than we read."""
        for _ in range(DRAIN_READS):
            if not select.select([self.log_fd], [], [], 0)[0] or not self.drain():
                break

    def _exit(self) -> Exit:
        word, _, rest = self._status.decode("utf-8", "replace").partition(" ")
        if word != "ended":
            raise Refused(
                f"the sandbox did not start its program: {rest.strip() or 'the launcher was killed'}"
            )
        code = os.waitstatus_to_exitcode(int(rest))
        return Exit(code, None) if code >= 0 else Exit(None, signal.Signals(-code).name)


def spawn(
    argv: Sequence[str],
    *,
    limits: Limits,
    cores: Sequence[int],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    devices: Sequence[Path] = (),
    pass_fds: Sequence[int] = (),
    nice: int = 0,
    loopback: bool = False,
    at: Level | None = None,
) -> Process:
    """Start `argv` in a box of its own that sees the system and `readable`, and may change `writable`.

    Of the device nodes that belong to GPUs it sees `devices` alone. With `loopback` the programs in the box
    reach each other, and still nobody else, at 127.0.0.1.

    Paths are the same inside; `cwd` is an empty private folder unless given. What it prints goes to `log`.
    """
    where = level() if at is None else at
    scratch = None if where is Level.NAMESPACES else Path(tempfile.mkdtemp(prefix="swarm-box-"))
    uid = _spare_uid(where, [Path(argv[0]), *readable], writable)
    for folder in [*writable, *([] if scratch is None else [scratch])]:
        if uid is not None:
            os.chown(folder, uid, uid)
    home = "/tmp" if scratch is None else str(scratch)
    leash_read, leash = os.pipe()
    status_fd, status_write = os.pipe()
    spec = {
        "argv": [str(word) for word in argv],
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home}
        | dict(env or {}),
        "cwd": home if cwd is None else str(cwd),
        "namespaces": where is Level.NAMESPACES,
        "uid": uid,
        "cores": list(cores),
        "nice": nice,
        "rlimits": _rlimits(
            limits,
            0 if where is Level.NAMESPACES or uid is not None else _own_tasks(),
            memory="RLIMIT_DATA" if devices else "RLIMIT_AS",
        ),
        "scratch_bytes": limits.scratch_bytes,
        "loopback": loopback,
        "readable": _visible(
            [
                *SYSTEM,
                *SYSTEM_FILES,
                *(GPU_FILES if devices else ()),
                *python_paths(),
                *map(str, readable),
            ]
        ),
        "writable": [str(path) for path in writable],
        "devices": [str(path) for path in devices],
        "pass_fds": list(pass_fds),
        "leash_fd": leash_read,
        "status_fd": status_write,
    }
    try:
        popen = subprocess.Popen(
            [os.path.realpath(sys.executable), "-I", "-S", str(LAUNCHER), json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[leash_read, status_write, *pass_fds],
            env={},
            start_new_session=True,
        )
    except OSError:
        os.close(leash)
        os.close(status_fd)
        raise
    finally:
        os.close(leash_read)
        os.close(status_write)
    return Process(popen, leash, status_fd, scratch)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    limits: Limits,
    cores: Sequence[int],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    nice: int = 0,
    at: Level | None = None,
) -> Completed:
    """Run `argv` in a box to its end, or for `timeout_s`."""
    process = spawn(
        argv,
        limits=limits,
        cores=cores,
        env=env,
        cwd=cwd,
        readable=readable,
        writable=writable,
        nice=nice,
        at=at,
    )
    with process:
        end = process.wait(timeout_s)
    return Completed(end, process.log)


@cache
def level() -> Level:
    """Return the strongest box that this machine can build, found by building one."""
    try:
        done = run(
            ["/bin/true"],
            timeout_s=KILL_S,
            limits=Limits(),
            cores=sorted(os.sched_getaffinity(0)),
            at=Level.NAMESPACES,
        )
    except Refused:
        return Level.PROCESS_GROUP
    return Level.NAMESPACES if done.exit == Exit(0, None) else Level.PROCESS_GROUP


def python_paths() -> list[str]:
    """Return what an isolated Python of ours needs to see."""
    return [os.path.realpath(sys.base_prefix)]


def _rlimits(limits: Limits, tasks: int, *, memory: str) -> dict[str, int]:
    return {
        memory: limits.memory_bytes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NPROC": tasks + limits.processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CPU": limits.cpu_s,
        "RLIMIT_CORE": 0,
    }


def _own_tasks() -> int:
    """Count the tasks of our user: without a namespace or a user of its own, a box is counted with them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if folder.stat().st_uid == os.geteuid():
                count += sum(1 for _ in (folder / "task").iterdir())
    return count


def _visible(paths: Sequence[str]) -> list[str]:
    """Return the paths that exist and are not inside another one, shortest first."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if os.path.lexists(path) and not any(path.startswith(f"{folder}/") for folder in kept):
            kept.append(path)
    return kept


def _spare_uid(where: Level, needed: Sequence[Path], writable: Sequence[Path]) -> int | None:
    """Return a user to become if we are root and everybody can reach what is needed.

    A folder that was writable in an earlier box keeps its user.
    """
    if os.geteuid() != 0:
        return None
    for folder in writable:
        if folder.stat().st_uid in UIDS:
            return folder.stat().st_uid
    if where is Level.PROCESS_GROUP and not all(map(_is_public, [*needed, *writable])):
        return None
    return random.SystemRandom().choice(UIDS)


def _is_public(path: Path) -> bool:
    """Say whether any user can reach `path` and read it; what is not there is nobody's secret."""
    real = path.resolve()
    if not real.exists():
        return True
    return all(folder.stat().st_mode & 0o001 for folder in real.parents) and bool(real.stat().st_mode & 0o004)
