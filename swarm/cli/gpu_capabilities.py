"""What this machine can do with NVIDIA GPUs: the driver, the GPUs, who uses them, and CUDA's tools.

Without a GPU nothing of it is needed, but compiling for one that is elsewhere works, and is told.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarm.cli.capability import PROBE_TIMEOUT_S, Capability, State, output
from swarm.device import why_no_gpu
from swarm.errors import Refused
from swarm.languages import cuda_toolkit
from swarm.languages.cute_dsl import CuteDsl
from swarm.languages.triton import Triton

DRIVER_NEEDED = 580
"""The first with CUDA 13."""
DRIVER_REMEDY = f"install NVIDIA's driver {DRIVER_NEEDED} or newer; until then: swarm run --device cpu"
PACKAGES_REMEDY = "make install EXTRAS=cuda"
BUSY_PERCENT = 5
GB = 1e9
ROOT = Path(__file__).parent.parent.parent
"""Where the package lies."""


def probe() -> Iterator[Capability]:
    """Yield every capability that concerns GPUs."""
    reason = why_no_gpu()
    yield _driver(reason)
    if not reason:
        yield from _gpus()
    is_there = not reason
    yield _bindings(is_there)
    yield _cupti(is_there)
    yield _nvrtc(is_there)
    yield _nvcc(is_there)
    yield _module("Triton", "triton", Triton.remedy)
    yield _module("CuTe DSL", "nvidia-cutlass-dsl", CuteDsl.remedy)
    yield _disassembler()
    yield _profiler(is_there)


def _driver(reason: str) -> Capability:
    name = "NVIDIA driver"
    version = _driver_version()
    if version is None:
        if reason:
            return Capability(name, State.UNUSED, f"{reason}; the CPU is the device")
        return Capability(name, State.MISSING, "there are GPUs, but no driver answers", DRIVER_REMEDY)
    if reason:
        return Capability(name, State.UNUSED, f"{version}; {reason}; the CPU is the device")
    if int(version.partition(".")[0]) < DRIVER_NEEDED:
        found = f"{version}; {DRIVER_NEEDED} is needed for CUDA 13"
        return Capability(name, State.MISSING, found, DRIVER_REMEDY)
    return Capability(name, State.THERE, version)


def _driver_version() -> str | None:
    """Return the version from the driver's own file, or from nvidia-smi where there is none."""
    path = Path("/proc/driver/nvidia/version")
    if path.is_file() and (match := re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text())):
        return match[1]
    told = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return told.splitlines()[0].strip() if told else None


def _gpus() -> Iterator[Capability]:
    """Say which GPUs there are and whether others are at work on them; no context is made."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        yield _gpus_of_smi()
        return
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        yield _models(pynvml, handles)
        yield _load(pynvml, handles)
    except pynvml.NVMLError as error:
        yield Capability("GPUs", State.MISSING, f"NVML: {error}", "see what nvidia-smi says")


def _gpus_of_smi() -> Capability:
    """Ask nvidia-smi where nvidia-ml-py is not installed; the judge needs neither."""
    told = output("nvidia-smi", "--query-gpu=name,compute_cap,memory.total", "--format=csv,noheader")
    if not told:
        return Capability("GPUs", State.MISSING, "nvidia-smi does not answer", "see what it says")
    return Capability("GPUs", State.THERE, "; ".join(line.strip() for line in told.splitlines()))


def _models(nvml: Any, handles: list[Any]) -> Capability:
    told = []
    for handle in handles:
        arch = cuda_toolkit.arch_for(*nvml.nvmlDeviceGetCudaComputeCapability(handle))
        memory_gb = nvml.nvmlDeviceGetMemoryInfo(handle).total / GB
        told.append(f"{_text(nvml.nvmlDeviceGetName(handle))} ({arch}, {memory_gb:.0f} GB)")
    if not told:
        return Capability("GPUs", State.MISSING, "the driver sees none", "see what nvidia-smi says")
    counted = ", ".join(f"{told.count(one)} x {one}" for one in dict.fromkeys(told))
    return Capability("GPUs", State.THERE, counted)


def _load(nvml: Any, handles: list[Any]) -> Capability:
    """Say which processes of others are on the GPUs; without samples a full GPU still shows its load."""
    busy = []
    for index, handle in enumerate(handles):
        percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        holders = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        if percent > BUSY_PERCENT:
            who = f", processes {', '.join(map(str, holders))}" if holders else ""
            busy.append(f"GPU {index} is {percent} % busy{who}")
    if not busy:
        return Capability("GPU load", State.THERE, "idle")
    remedy = "end what runs there, or choose another GPU with --device cuda:N; kernels are measured alone"
    return Capability("GPU load", State.LIMITED, "; ".join(busy), remedy)


def _bindings(is_needed: bool) -> Capability:
    name = "CUDA bindings"
    version = _installed("cuda-bindings")
    if version is None:
        return _lacking(name, is_needed, "cuda-bindings is not installed", PACKAGES_REMEDY)
    if int(version.partition(".")[0]) < cuda_toolkit.NEEDED_MAJOR:
        return _lacking(name, is_needed, f"{version}; {cuda_toolkit.NEEDED_MAJOR} is needed", PACKAGES_REMEDY)
    return Capability(name, State.THERE, version)


def _cupti(is_needed: bool) -> Capability:
    """Make ready to record, in a process of its own: CUPTI hooks into the driver of the one that loads it."""
    version = _installed("cupti-python")
    text = "without cupti-python" if version is None else version
    if not is_needed:
        state = State.UNUSED if version is None else State.THERE
        return Capability("CUPTI", state, f"{text}; not tried, for it needs a driver")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from swarm.judge.cuda.activities import Activities\nActivities()"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Capability("CUPTI", State.MISSING, f"{text}; it does not answer: {error}", PACKAGES_REMEDY)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it died"])[-1]
        return Capability("CUPTI", State.MISSING, f"{text}; {said[:200]}", PACKAGES_REMEDY)
    return Capability("CUPTI", State.THERE, text)


def _nvrtc(is_needed: bool) -> Capability:
    try:
        found = cuda_toolkit.nvrtc()
    except Refused as error:
        return _lacking("NVRTC", is_needed, error.what, error.remedy or PACKAGES_REMEDY)
    text = f"{found.version} at {found.library}"
    if missing := cuda_toolkit.missing_headers(found.headers):
        text = f"{text}; kernels cannot include {', '.join(missing)}"
        return Capability("NVRTC", State.LIMITED, text, PACKAGES_REMEDY)
    return Capability("NVRTC", State.THERE, text)


def _nvcc(is_useful: bool) -> Capability:
    try:
        found = cuda_toolkit.nvcc()
    except Refused as error:
        state = State.LIMITED if is_useful else State.UNUSED
        return Capability("nvcc", state, f"{error.what}; no cuda_cpp", error.remedy or PACKAGES_REMEDY)
    return Capability("nvcc", State.THERE, f"{found.version} at {found.path}")


def _module(name: str, package: str, remedy: str) -> Capability:
    version = _installed(package)
    if version is None:
        return Capability(name, State.UNUSED, f"{package} is not installed; no kernels in it", remedy)
    return Capability(name, State.THERE, version)


def _disassembler() -> Capability:
    found = cuda_toolkit.disassembler()
    if found is None:
        return Capability("nvdisasm", State.UNUSED, "none; no --sass", PACKAGES_REMEDY)
    return Capability("nvdisasm", State.THERE, str(found))


def _profiler(is_useful: bool) -> Capability:
    found = cuda_toolkit.tool("ncu")
    if found is None:
        remedy = "install Nsight Compute" if is_useful else ""
        return Capability("Nsight Compute", State.UNUSED, "no ncu; no --profile", remedy)
    params = Path("/proc/driver/nvidia/params")
    is_closed = params.is_file() and "RmProfilingAdminOnly: 1" in params.read_text()
    if is_useful and is_closed and os.geteuid() != 0:
        remedy = "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d"
        return Capability(
            "Nsight Compute", State.UNUSED, f"{found}; the driver keeps counters for root", remedy
        )
    return Capability("Nsight Compute", State.THERE, str(found))


def _lacking(name: str, is_needed: bool, found: str, remedy: str) -> Capability:
    return Capability(name, State.MISSING if is_needed else State.UNUSED, found, remedy)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
