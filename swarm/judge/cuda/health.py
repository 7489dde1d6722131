"""Is this GPU ours alone, and as fast as it can be? What NVML says of it, for the record and for doubt.

Nothing is ever set: clocks, power limits and modes stay as they are found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from swarm.device import Device
from swarm.errors import Refused
from swarm.judge.cuda.nvml import nvml
from swarm.languages.protocol import Failure

GONE_S = 15.0
"""How long a GPU may take to end what a killed process had left on it."""
ALONE_S = 10.0
POLL_S = 0.02
AT_SPEED = 0.95
LOOK_BACK_S = 1.0
BUSY_PERCENT = 5
SLOWING = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "power brake",
}
"""NVML's nvmlClocksEventReason*: those that make a kernel slower than it is."""


class Health:
    """NVML's view of one GPU."""

    def __init__(self, device: Device) -> None:
        self._nvml = nvml()
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        self._reasons = {
            getattr(self._nvml, f"nvmlClocksEventReason{name}"): text for name, text in SLOWING.items()
        }
        self._device = device

    @property
    def driver(self) -> str:
        """Return the driver's version."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def throttled(self) -> str:
        """Say what slows the GPU down at this moment; empty if nothing does."""
        active = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        return ", ".join(text for bit, text in self._reasons.items() if active & bit)

    def is_at_speed(self) -> bool:
        """Say whether the multiprocessors run near their highest clock: an idle GPU takes a while."""
        nvml, handle = self._nvml, self._handle
        now_mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        return bool(now_mhz >= AT_SPEED * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))

    def facts(self) -> dict[str, str | float | int]:
        """Return clocks, power, temperature and what slows the GPU down."""
        nvml, handle = self._nvml, self._handle
        facts: dict[str, str | float | int] = {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "throttled": self.throttled() or "no",
        }
        with suppress(nvml.NVMLError):  # some boards do not tell
            facts["power_w"] = round(nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 1)
            facts["power_limit_w"] = round(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3, 1)
        return facts

    def check(self) -> None:
        """Raise Refused if the GPU is not to be measured on: memory errors, or others at work on it."""
        nvml = self._nvml
        with suppress(nvml.NVMLError):  # not every board counts them
            if nvml.nvmlDeviceGetTotalEccErrors(
                self._handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ):
                raise Refused(
                    f"{self._device.uuid} counts uncorrected memory errors",
                    remedy="have the GPU reset; until then use another one",
                )
        deadline = time.monotonic() + ALONE_S
        while others := self._others_at_work():
            if time.monotonic() > deadline:
                raise Refused(
                    f"{self._device.uuid} is busy with process {', '.join(map(str, others))}",
                    remedy="end it, or use another GPU; a kernel is measured alone",
                )
            time.sleep(POLL_S)

    def wait_until_gone(self, pid: int) -> None:
        """Wait until a killed process has left the GPU; Refused if it does not within GONE_S."""
        deadline = time.monotonic() + GONE_S
        while pid in self._processes():
            if time.monotonic() > deadline:
                raise Refused(
                    f"killed process {pid} is still on {self._device.uuid}",
                    remedy="nvidia-smi shows it; nothing can be measured until it is gone",
                )
            time.sleep(POLL_S)

    def _processes(self) -> set[int]:
        """Return the processes that have a context on the GPU, as far as NVML shows them."""
        found: set[int] = set()
        for ask in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            with suppress(self._nvml.NVMLError):
                found |= {int(process.pid) for process in getattr(self._nvml, ask)(self._handle)}
        return found

    def _others_at_work(self) -> list[int]:
        """Return the processes not started by us that use the GPU; an idle context disturbs nobody."""
        others = {pid for pid in self._processes() if not _is_ours(pid)}
        if not others:
            return []
        since_us = int((time.time() - LOOK_BACK_S) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)
        except self._nvml.NVMLError:  # no samples: nobody did anything, or the driver does not tell
            return []
        return sorted({int(s.pid) for s in samples if s.pid in others and s.smUtil > BUSY_PERCENT})


class GpuClock:
    """The seconds of one job, and how the GPU was at its end."""

    def __init__(self, health: Health, clocks: Callable[[], dict[str, str | float | int]]) -> None:
        """`clocks` says what the last table's calls were timed by."""
        self._health = health
        self._clocks = clocks
        self._begun_s = time.monotonic()
        self.measured_s = 0.0
        self.facts: dict[str, str | float | int] = {}

    @property
    def total_s(self) -> float:
        return time.monotonic() - self._begun_s

    @contextmanager
    def measuring(self) -> Iterator[None]:
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.facts = self._health.facts() | self._clocks()
            self.measured_s = time.monotonic() - begun_s

    def check_alone(self, failure: Failure) -> None:
        """Nothing: a control runs beside each request, and its lock keeps others off a GPU."""


def _is_ours(pid: int) -> bool:
    """Say whether a process is this one or below it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has just ended
            return True
        pid = int(status.partition("PPid:")[2].split(maxsplit=1)[0])
    return False
