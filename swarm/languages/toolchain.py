"""The C++ compiler: which one, what it builds for, and one sandboxed call of it or of another compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swarm import sandbox
from swarm.contents import files_hash
from swarm.device import Device
from swarm.durable import create_only
from swarm.environment import environment
from swarm.errors import Refused

COMPILERS = ("g++", "c++", "clang++")
OBJECT_BYTES = 256 << 20
LEAST_FREE_BYTES = 4 << 20
"""With less space than this for its output, it is not the sources' fault that a compiler failed."""
NICE = 5
"""A compiler must not delay the judge where both are on the same core."""


@dataclass(frozen=True, slots=True)
class Compiler:
    path: Path
    version: str
    """First line of --version."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call of a compiler that makes a shared object; ` -o RESULT` comes after it."""

    argv: tuple[str, ...]
    identity: str
    """What else the result depends on, beside these words and the files."""
    readable: tuple[Path, ...] = ()
    """What it needs to see beside the system."""


@dataclass(frozen=True, slots=True)
class Built:
    path: Path
    log: str


@dataclass(frozen=True, slots=True)
class NotBuilt:
    exit: sandbox.Exit | None
    """None if it ran out of time."""
    log: str


@cache
def compiler() -> Compiler:
    """Return the machine's C++ compiler, or raise Refused with the command that installs one."""
    for name in COMPILERS:
        found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") or shutil.which(name)
        if found is not None:
            said = subprocess.run(
                [found, "--version"],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
                env=environment(),
            )
            return Compiler(Path(found), said.stdout.splitlines()[0])
    raise Refused("no C++ compiler on this machine", remedy="install one: apt-get install g++")


@cache
def machine() -> str:
    """Name what -march=native depends on: a build is only good for processors with the same name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    told = {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))}
    text = "\n".join([os.uname().machine, *sorted(told)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build(
    files: Mapping[str, bytes],
    options: Sequence[str],
    cache: Path,
    *,
    timeout_s: float,
    memory_bytes: int,
    cores: Sequence[int],
) -> Built | NotBuilt:
    """Compile the .cpp files among `files` into one shared object, in the sandbox.

    The result is kept in `cache` by content: sources, options, compiler and processor.
    """
    path = compiler().path
    sources = sorted(name for name in files if name.endswith(".cpp"))
    command = Command(
        (str(path), *options, "-I.", *sources),
        f"{compiler().version} for {machine()}",
        tuple(_outside_the_system(path)),
    )
    return build_with(command, files, cache, timeout_s=timeout_s, memory_bytes=memory_bytes, cores=cores)


def build_with(
    command: Command,
    files: Mapping[str, bytes],
    cache: Path,
    *,
    timeout_s: float,
    memory_bytes: int,
    cores: Sequence[int],
) -> Built | NotBuilt:
    """Call a compiler in the sandbox, in a folder with `files`; the result is kept in `cache`."""
    kept = cache / "objects" / f"{_key(command, files)}.so"
    said = kept.with_suffix(".log")
    if kept.exists():
        return Built(kept, said.read_text() if said.exists() else "")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="swarm-build-") as temp:
        folder = Path(temp)
        folder.chmod(0o755)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        result = folder / "out" / "result.so"
        result.parent.mkdir()
        done = sandbox.run(
            [*command.argv, "-o", str(result)],
            timeout_s=timeout_s,
            limits=sandbox.Limits(
                memory_bytes=memory_bytes,
                file_bytes=OBJECT_BYTES,
                scratch_bytes=2 * OBJECT_BYTES,
                processes=64,
                open_files=256,
            ),
            cores=cores,
            cwd=folder,
            readable=[folder, *command.readable],
            writable=[result.parent],
            nice=NICE,
        )
        if done.exit is None or not done.exit.succeeded or not _is_plain_file(result):
            _check_space(folder)
            return NotBuilt(done.exit, done.output)
        if done.output:
            create_only(said, done.output.encode())
        create_only(kept, result.read_bytes())
    return Built(kept, done.output)


def cores_beside(device: Device) -> list[int]:
    """Return the cores for compilers: this thread's own, or if those are the device's, all that are not."""
    others = set(range(os.cpu_count() or 1)) - set(device.cores)
    return sorted(others & os.sched_getaffinity(0) or others or device.cores)


def _key(command: Command, files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for part in (command.identity, *command.argv, files_hash(files)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]


def _check_space(folder: Path) -> None:
    """Raise Refused if there is no room for what a compiler writes."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise Refused(
            f"{free} bytes are left for the compiler",
            where=str(folder.parent),
            remedy="free some space there",
        )


def _is_plain_file(path: Path) -> bool:
    """A compiler driven by a candidate's text must not make us follow a link out of the box."""
    return path.is_file() and not path.is_symlink()


def _outside_the_system(path: Path) -> list[Path]:
    prefix = path.resolve().parent.parent
    return [] if str(prefix).startswith("/usr") or prefix == Path("/") else [prefix]
