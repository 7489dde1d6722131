"""The devices of this host, and which cores everything else must stay on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Device:
    """One thing kernels are measured on."""

    kind: str
    """`cpu` or `cuda`."""
    model: str
    """A slug that names all devices whose times may be compared."""
    uuid: str
    """This very device on this very host."""
    cores: tuple[int, ...]
    """The cores the judge, the reference and the runner use; on a CPU they are what is measured."""
    arch: str = ""
    """Of a GPU: what kernels are compiled for, for example `sm_90a`."""
    memory_bytes: int = 0
    multiprocessors: int = 0

    @property
    def workloads_file(self) -> str:
        return "workload.cpu.jsonl" if self.kind == "cpu" else "workload.jsonl"


def cpu_device(available: frozenset[int] | None = None) -> Device:
    """Return the CPU as a device: all but the first core, or the only one."""
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    pinned = tuple(cores[1:] or cores)
    model = re.sub(r"[^a-z0-9]+", "-", f"{_cpu_name()} {len(pinned)} core".lower()).strip("-")
    return Device("cpu", model, f"cpu-{_machine_id()}-{'.'.join(map(str, pinned))}", pinned)


def other_cores(available: frozenset[int] | None = None) -> frozenset[int]:
    """Return the cores for compilers, agents and everything that is not being measured."""
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    return frozenset(cores[:1])


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part", "Hardware")):
            return re.sub(r"\((R|TM)\)|CPU|@.*", "", line.split(":", 1)[1])
    return "unknown cpu"


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text:
            return text[:12]
    return "unknown"
