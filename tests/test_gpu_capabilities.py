"""`swarm doctor` on machines with GPUs: one line says what is missing, old or busy. The GPUs are made up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from swarm.cli import gpu_capabilities
from swarm.cli.capability import Capability, State
from swarm.languages import cuda_toolkit

Probe = Callable[..., dict[str, Capability]]


class NvmlError(Exception):
    pass


@dataclass
class Card:
    """A GPU as NVML tells it."""

    name: str | bytes = "NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    percent: int = 0
    pids: tuple[int, ...] = ()


@dataclass
class Nvml:
    """The part of pynvml that is asked."""

    cards: list[Card]
    broken: str = ""
    module: ModuleType = field(default_factory=lambda: ModuleType("pynvml"))

    def __post_init__(self) -> None:
        def init() -> None:
            if self.broken:
                raise NvmlError(self.broken)

        calls: dict[str, Callable[..., object]] = {
            "nvmlInit": init,
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlDeviceGetHandleByIndex": lambda index: self.cards[index],
            "nvmlDeviceGetName": lambda card: card.name,
            "nvmlDeviceGetCudaComputeCapability": lambda card: card.capability,
            "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(total=150_754_820_096),
            "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=card.percent),
            "nvmlDeviceGetComputeRunningProcesses": lambda card: [SimpleNamespace(pid=p) for p in card.pids],
        }
        vars(self.module).update(calls, NVMLError=NvmlError)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Probe a machine with these GPUs and this driver; by the name of the capability."""

    def probe(
        cards: list[Card], driver: str | None = "580.159.04", broken: str = ""
    ) -> dict[str, Capability]:
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(cards, broken).module)
        monkeypatch.setattr(
            gpu_capabilities, "why_no_gpu", lambda: "" if cards or broken else "no GPU is here"
        )
        monkeypatch.setattr(gpu_capabilities, "_driver_version", lambda: driver)
        return {one.name: one for one in gpu_capabilities.probe()}

    return probe


def test_gpus_are_told_with_what_kernels_are_compiled_for(
    machine: Probe,
) -> None:
    found = machine([Card(), Card(), Card(b"NVIDIA L40S", (8, 9))])
    assert found["NVIDIA driver"].state is State.THERE
    assert found["GPUs"].found == "2 x NVIDIA H200 (sm_90a, 151 GB), 1 x NVIDIA L40S (sm_89, 151 GB)"
    assert found["GPU load"] == Capability("GPU load", State.THERE, "idle")


def test_an_old_driver_is_missing_what_the_run_needs(machine: Probe) -> None:
    found = machine([Card()], driver="570.86.15")["NVIDIA driver"]
    assert found.state is State.MISSING
    assert found.found == "570.86.15; 580 is needed for CUDA 13"
    assert "driver 580 or newer" in found.remedy and "--device cpu" in found.remedy


def test_gpus_without_a_driver_are_told(machine: Probe) -> None:
    found = machine([Card()], driver=None)["NVIDIA driver"]
    assert found.state is State.MISSING and "no driver answers" in found.found


def test_a_driver_that_does_not_start_is_told_in_its_words(
    machine: Probe,
) -> None:
    found = machine([], broken="Driver/library version mismatch")["GPUs"]
    assert found.state is State.MISSING and "Driver/library version mismatch" in found.found


def test_a_busy_gpu_is_told_with_who_is_on_it(machine: Probe) -> None:
    found = machine([Card(), Card(percent=97, pids=(41, 42))])["GPU load"]
    assert found.state is State.LIMITED
    assert found.found == "GPU 1 is 97 % busy, processes 41, 42"
    assert "--device cuda:N" in found.remedy


def test_gpus_are_told_without_nvidia_ml_py(
    machine: Probe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "NVIDIA H200, 9.0, 143771 MiB"\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine([Card()])
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = {one.name: one for one in gpu_capabilities.probe()}["GPUs"]
    assert found == Capability("GPUs", State.THERE, "NVIDIA H200, 9.0, 143771 MiB")


def test_cupti_that_cannot_be_used_is_told_in_its_words(
    machine: Probe,
) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("there is a driver, so CUPTI works")
    found = machine([Card()])["CUPTI"]
    assert found.state is State.MISSING and "driver" in found.found


def test_without_a_gpu_nothing_is_missing(machine: Probe) -> None:
    found = machine([], driver=None)
    assert found["NVIDIA driver"].state is State.UNUSED
    assert all(one.state in (State.THERE, State.UNUSED) for one in found.values())
    assert "GPUs" not in found


@pytest.mark.parametrize(("cards", "state"), [([Card()], State.MISSING), ([], State.UNUSED)])
def test_a_missing_compiler_matters_where_a_gpu_is(
    machine: Probe,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cards: list[Card],
    state: State,
) -> None:
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [tmp_path])
    cuda_toolkit.nvrtc.cache_clear()
    cuda_toolkit.nvcc.cache_clear()
    try:
        found = machine(cards)
    finally:
        cuda_toolkit.nvrtc.cache_clear()
        cuda_toolkit.nvcc.cache_clear()
    assert found["NVRTC"].state is state and "EXTRAS=cuda" in found["NVRTC"].remedy
    assert found["nvcc"].state is (State.LIMITED if cards else State.UNUSED)
    assert "no cuda_cpp" in found["nvcc"].found
