"""What this machine can do: one probe per capability, each with the command that fixes what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from swarm import device
from swarm.cli import gpu_capabilities
from swarm.cli.capability import Capability, State, output

DISK_NEEDED_GB = 2.0
INOTIFY_INSTANCES_NEEDED = 16
INOTIFY_WATCHES_NEEDED = 4096
GIT_NEEDED = (2, 31)
GIT_WANTED = (2, 36)
"""core.fsync: an acknowledged commit survives a power cut."""
TORCH_NEEDED = (2, 11)


def probe(folder: Path) -> Iterator[Capability]:
    """Yield every capability of this machine, for a run root (to be) in `folder`."""
    yield _python()
    yield _git()
    yield _compiler()
    yield _torch()
    yield _torch_compile()
    yield _cores()
    yield _load()
    yield _sandbox()
    yield _disk(folder)
    yield _inotify()
    yield from gpu_capabilities.probe()


def _python() -> Capability:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info[:2] in ((3, 11), (3, 12)):
        return Capability("python", State.THERE, found)
    remedy = "make install PYTHON=python3.12"
    return Capability("python", State.LIMITED, f"{found}; tested with 3.11 and 3.12", remedy)


def _git() -> Capability:
    text = output("git", "--version")
    version = _version(text or "")
    if version is None:
        return Capability("git", State.MISSING, "no git on PATH", "apt-get install git")
    found = ".".join(map(str, version))
    if version < GIT_NEEDED:
        needed = ".".join(map(str, GIT_NEEDED))
        return Capability("git", State.MISSING, f"{found}; {needed} is needed", "apt-get install git")
    if version < GIT_WANTED:
        return Capability(
            "git",
            State.LIMITED,
            f"{found}; without core.fsync a power cut can lose a commit",
            "apt-get install git",
        )
    return Capability("git", State.THERE, found)


def _compiler() -> Capability:
    name = compiler()
    if name is None:
        return Capability(
            "compiler", State.MISSING, "neither $CXX nor g++ nor clang++", "apt-get install g++"
        )
    found = (output(name, "--version") or name).splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text("#include <omp.h>\nint cores() { return omp_get_max_threads(); }\n")
        flags = ("-std=c++17", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o", f"{folder}/probe.so")
        if output(name, *flags, str(source)) is None:
            remedy = "apt-get install libomp-dev" if "clang" in found else "apt-get install g++"
            return Capability("compiler", State.MISSING, f"{found}; no C++17 with OpenMP", remedy)
    return Capability("compiler", State.THERE, f"{found}; C++17 and OpenMP work")


def _torch() -> Capability:
    fix = f"{sys.executable} -m pip install -c constraints.txt torch"
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Capability("torch", State.MISSING, "not installed", fix)
    version = _version(found)
    if version is None or version < TORCH_NEEDED:
        return Capability("torch", State.MISSING, f"{found}; 2.11 is needed", fix)
    return Capability("torch", State.THERE, found)


def _torch_compile() -> Capability:
    name = "torch.compile"
    if compiler() is None:
        return Capability(
            name, State.LIMITED, "no C++ compiler; baselines are eager only", "apt-get install g++"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        return Capability(
            name,
            State.LIMITED,
            f"{header} is missing, which its C++ needs; baselines are eager only",
            "apt-get install python3-dev",
        )
    return Capability(name, State.THERE, "its compiler and Python.h are there")


def _cores() -> Capability:
    cpu, others = device.cpu_device(), device.other_cores()
    found = f"{cpu.model}: measures on {_ranges(cpu.cores)}, all else on {_ranges(tuple(sorted(others)))}"
    if others <= set(cpu.cores):
        return Capability(
            "cores", State.LIMITED, f"{found}; compilers disturb what is measured", "use 2 cores"
        )
    return Capability("cores", State.THERE, found)


def _load() -> Capability:
    busy = os.getloadavg()[0]
    found = f"load {busy:.1f} in the last minute on {os.cpu_count()} cores"
    if busy > 1.0:
        return Capability("quiet", State.LIMITED, f"{found}; times will be noisy", "stop what else runs here")
    return Capability("quiet", State.THERE, found)


def _sandbox() -> Capability:
    from swarm import sandbox  # it probes by starting a process

    level, standing = sandbox.level(), sandbox.standing()
    if why := sandbox.lack(level):
        return Capability("sandbox", State.MISSING, f"no box can be built: {why}", sandbox.remedy())
    if level is sandbox.Level.BUBBLEWRAP:
        return Capability("sandbox", State.THERE, standing)
    if level is sandbox.Level.NAMESPACES:
        why = sandbox.lack(sandbox.Level.BUBBLEWRAP)
        return Capability("sandbox", State.THERE, f"{standing}; bubblewrap is not used: {why}")
    why = sandbox.lack(sandbox.Level.NAMESPACES)
    return Capability("sandbox", State.LIMITED, f"{standing}; no namespaces: {why}", sandbox.remedy())


def _disk(folder: Path) -> Capability:
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    free_gb = shutil.disk_usage(existing).free / 1e9
    found = f"{free_gb:.1f} GB free at {existing}"
    if not os.access(existing, os.W_OK):
        return Capability("disk", State.MISSING, f"{existing} is not writable", f"chmod u+w {existing}")
    if free_gb < DISK_NEEDED_GB:
        return Capability(
            "disk", State.LIMITED, f"{found}; {DISK_NEEDED_GB:.0f} GB is safe", "free some space"
        )
    return Capability("disk", State.THERE, found)


def _inotify() -> Capability:
    instances = _sysctl("fs/inotify/max_user_instances")
    watches = _sysctl("fs/inotify/max_user_watches")
    if instances is None or watches is None:
        return Capability(
            "inotify", State.LIMITED, "no inotify; the watcher polls", "nothing: polling is enough"
        )
    found = f"{instances} instances, {watches} watches"
    if instances < INOTIFY_INSTANCES_NEEDED or watches < INOTIFY_WATCHES_NEEDED:
        fix = "sysctl -w fs.inotify.max_user_instances=128 fs.inotify.max_user_watches=65536"
        return Capability("inotify", State.LIMITED, f"{found}; the watcher may have to poll", fix)
    return Capability("inotify", State.THERE, found)


def compiler() -> str | None:
    """Return the C++ compiler that kernels would be built with."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    return None


def _version(text: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _sysctl(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text())
    except (OSError, ValueError):
        return None


def _ranges(cores: tuple[int, ...]) -> str:
    if len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1:
        return f"cores {cores[0]}-{cores[-1]}"
    return f"core{'s' if len(cores) > 1 else ''} {','.join(map(str, cores))}"
