"""Start programs in boxes of the strongest level that this machine can build."""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from swarm.box import main, walls
from swarm.errors import Refused
from swarm.sandbox import calls
from swarm.sandbox.advice import remedy
from swarm.sandbox.limits import Completed, Exit, Level, Limits
from swarm.sandbox.process import KILL_S, Process
from swarm.sandbox.users import own_tasks, right_to_read, spare_uid

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/nix/store")
SYSTEM_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
PACKAGE = Path(__file__).resolve().parents[1]
"""Python can only import it if it may list the folder that it is in."""
GPU_FILES = ("/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module")
"""What a GPU's driver reads besides /proc."""


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
    is_pinned: bool = False,
    at: Level | None = None,
) -> Process:
    """Start `argv` in a box of its own that sees the system and `readable`, and may change `writable`.

    Of the device nodes that belong to GPUs it sees `devices` alone. With `loopback` the programs in the box
    reach each other, and still nobody else, at 127.0.0.1 and by ptrace, as a profiler must; that takes
    namespaces. A pinned box cannot leave its cores.

    Paths are the same inside; `cwd` is an empty private folder unless given. What it prints goes to `log`.
    """
    where = level() if at is None else at
    has_host_root = where is Level.PROCESS_GROUP
    if loopback and has_host_root:
        raise Refused("a box that talks to itself by TCP needs a network of its own", remedy=remedy())
    uid = spare_uid(writable)
    needed = [Path(argv[0]), *readable, *(folder.parent for folder in writable)]
    landlock = walls.landlock() if has_host_root else 0
    right = right_to_read(needed, landlock) if has_host_root and uid is not None else None
    filtered = calls.program(loopback=loopback, is_pinned=is_pinned, shares_network=has_host_root)
    scratch = Path(tempfile.mkdtemp(prefix="swarm-box-")) if has_host_root else None
    home = scratch or Path("/tmp")
    writable = [*writable, *([home] if scratch else [])]
    for folder in writable:
        if uid is not None:
            os.chown(folder, uid, uid)
    spec = {
        "argv": [str(word) for word in argv],
        "env": {**SYSTEM_ENVIRONMENT, "HOME": str(home), "TMPDIR": str(home), **(env or {})},
        "cwd": str(cwd or home),
        "level": where.value,
        "bubblewrap": _bubblewrap(),
        "landlock": landlock,
        "right": right,
        "filter": filtered.hex(),
        "uid": uid,
        "cores": list(cores),
        "nice": nice,
        "rlimits": _rlimits(
            limits,
            own_tasks() if has_host_root and uid is None else 0,
            memory="RLIMIT_DATA" if devices else "RLIMIT_AS",
        ),
        "scratch_bytes": limits.scratch_bytes,
        "loopback": loopback,
        "readable": _readable(where, devices, readable),
        "listable": [str(PACKAGE.parent)] if PACKAGE in readable else [],
        "writable": [str(path) for path in writable],
        "devices": [str(path) for path in devices],
        "pass_fds": list(pass_fds),
    }
    return _start(spec, pass_fds, scratch)


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
    return next((at for at in Level if not lack(at)), Level.PROCESS_GROUP)


@cache
def lack(at: Level) -> str:
    """Say in a sentence why this machine cannot build boxes of a level; nothing if it can."""
    if at is Level.BUBBLEWRAP and not _bubblewrap():
        return "no bwrap on PATH"
    try:
        done = run(
            ["/bin/true"], timeout_s=KILL_S, limits=Limits(), cores=sorted(os.sched_getaffinity(0)), at=at
        )
    except Refused as error:
        return str(error)
    return "" if done.exit == Exit(0, None) else f"/bin/true ended with {done.exit} there"


def require(wanted: Level, *, by: str) -> None:
    """Raise Refused if this machine's boxes are weaker; `by` says who wants it."""
    if not level().is_at_least(wanted):
        raise Refused(
            f"boxes here are {level()}, and {by} asks for {wanted}: {lack(wanted)}",
            remedy="apt-get install bubblewrap" if level() is Level.NAMESPACES else remedy(),
        )


def standing() -> str:
    """Return the level as it is recorded: without namespaces, it matters which Landlock guards files."""
    found = level()
    return f"{found} (landlock {walls.landlock()})" if found is Level.PROCESS_GROUP else found.value


def python_paths() -> list[str]:
    """Return what an isolated Python of ours needs to see."""
    return [os.path.realpath(sys.base_prefix)]


@cache
def _bubblewrap() -> str:
    """Return the path of bwrap, "" if there is none."""
    return shutil.which("bwrap") or ""


def _start(spec: dict[str, object], pass_fds: Sequence[int], scratch: Path | None) -> Process:
    """Start the launcher with a spec, on a leash that the Process holds."""
    leash_read, leash = os.pipe()
    status_fd, status_write = os.pipe()
    ends = {"leash_fd": leash_read, "status_fd": status_write}
    try:
        popen = subprocess.Popen(
            main.command("outer", marshal.dumps(spec | ends)),
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


def _rlimits(limits: Limits, tasks: int, *, memory: str) -> dict[str, int]:
    return {
        memory: limits.memory_bytes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NPROC": tasks + limits.processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CPU": limits.cpu_s,
        "RLIMIT_CORE": 0,
    }


def _readable(where: Level, devices: Sequence[Path], more: Sequence[Path]) -> list[str]:
    """Return what a box sees of the host: paths that exist and are not inside another one, shortest first."""
    paths = {*SYSTEM, *SYSTEM_FILES, *(GPU_FILES if devices else ()), *python_paths(), *map(str, more)}
    if where is Level.BUBBLEWRAP:
        paths |= set(main.SOURCES)  # our init starts inside
    kept: list[str] = []
    for path in sorted(paths):
        if os.path.lexists(path) and not any(path.startswith(f"{folder}/") for folder in kept):
            kept.append(path)
    return kept
