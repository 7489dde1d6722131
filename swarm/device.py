"""The devices of this host, and which cores everything else must stay on.

A GPU is described by `judge.cuda.devices`, which asks its driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ON_CPU: tuple[str, ...] = ("cpp", "pytorch")
ON_GPU: tuple[str, ...] = ("cuda", "cuda_cpp", "cute_dsl", "triton", "pytorch")
"""The languages that run on each kind of device; where several would do, the first is taken."""


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


def cores_beside(devices: Iterable[Device], available: frozenset[int] | None = None) -> frozenset[int]:
    """Return the cores that none of `devices` uses; the first one if they use all."""
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    used = {core for device in devices for core in device.cores}
    return frozenset(core for core in cores if core not in used) or frozenset(cores[:1])


def runs_on(language: str, kind: str) -> bool:
    """Say whether kernels in a language run on a kind of device: `cpu` or `cuda`."""
    return language in (ON_CPU if kind == "cpu" else ON_GPU)


def why_no_gpu() -> str:
    """Say why no GPU is to be expected here; empty if there should be one. Loads no driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    nodes = (*Path("/dev").glob("nvidia[0-9]*"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
    return "" if any(node.exists() for node in nodes) else "no NVIDIA GPU is here: there is no /dev/nvidia*"


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
