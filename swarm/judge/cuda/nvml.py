"""NVML by its C interface, under the names that nvidia-ml-py gives it: for hosts that have a driver only.

`nvml()` is what callers want: the package where it is installed, else this. Only what we ask NVML is here,
and everything here only reads.
"""

from __future__ import annotations

import ctypes
import importlib
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

from swarm.errors import Refused

LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
INSUFFICIENT_SIZE, NOT_FOUND = 7, 6
SPARE_ENTRIES = 8
"""A list may have grown since its length was asked for."""
TEXT_BYTES = 96

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
nvmlClocksEventReasonSwPowerCap = 0x04  # noqa: N816  # the names are NVML's
nvmlClocksEventReasonHwSlowdown = 0x08  # noqa: N816
nvmlClocksEventReasonSwThermalSlowdown = 0x20  # noqa: N816
nvmlClocksEventReasonHwThermalSlowdown = 0x40  # noqa: N816
nvmlClocksEventReasonHwPowerBrakeSlowdown = 0x80  # noqa: N816


class NVMLError(Exception):
    """NVML's answer was not 0."""

    def __init__(self, value: int) -> None:
        self.value = value
        text = _library().nvmlErrorString
        text.restype = c_char_p
        super().__init__((text(value) or b"unknown error").decode())


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of the third version of the calls."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class ProcessUtilization(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", c_uint),
        ("timeStamp", c_ulonglong),
        ("smUtil", c_uint),
        ("memUtil", c_uint),
        ("encUtil", c_uint),
        ("decUtil", c_uint),
    )


def nvml() -> Any:
    """Return NVML, ready to be asked; Refused where there is none."""
    try:
        found = importlib.import_module("pynvml")
    except ImportError:
        found = importlib.import_module(__name__)
    try:
        found.nvmlInit()
    except found.NVMLError as error:
        raise Refused(f"NVML does not start: {error}", remedy="see nvidia-smi") from None
    return found


def nvmlInit() -> None:  # noqa: N802  # the names are NVML's
    _call("nvmlInit_v2")


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    text = ctypes.create_string_buffer(TEXT_BYTES)
    _call("nvmlSystemGetDriverVersion", text, c_uint(TEXT_BYTES))
    return text.value.decode()


def nvmlDeviceGetHandleByUUID(uuid: str) -> c_void_p:  # noqa: N802
    handle = c_void_p()
    _call("nvmlDeviceGetHandleByUUID", c_char_p(uuid.encode()), byref(handle))
    return handle


def nvmlDeviceGetMinorNumber(handle: c_void_p) -> int:  # noqa: N802
    return _number("nvmlDeviceGetMinorNumber", handle)


def nvmlDeviceGetCurrentClocksEventReasons(handle: c_void_p) -> int:  # noqa: N802
    reasons = c_ulonglong()
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    if not hasattr(_library(), name):  # drivers before 535 call it so
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
    _call(name, handle, byref(reasons))
    return reasons.value


def nvmlDeviceGetClockInfo(handle: c_void_p, kind: int) -> int:  # noqa: N802
    return _number("nvmlDeviceGetClockInfo", handle, c_uint(kind))


def nvmlDeviceGetMaxClockInfo(handle: c_void_p, kind: int) -> int:  # noqa: N802
    return _number("nvmlDeviceGetMaxClockInfo", handle, c_uint(kind))


def nvmlDeviceGetTemperature(handle: c_void_p, sensor: int) -> int:  # noqa: N802
    return _number("nvmlDeviceGetTemperature", handle, c_uint(sensor))


def nvmlDeviceGetPowerUsage(handle: c_void_p) -> int:  # noqa: N802
    return _number("nvmlDeviceGetPowerUsage", handle)


def nvmlDeviceGetEnforcedPowerLimit(handle: c_void_p) -> int:  # noqa: N802
    return _number("nvmlDeviceGetEnforcedPowerLimit", handle)


def nvmlDeviceGetTotalEccErrors(handle: c_void_p, error: int, counter: int) -> int:  # noqa: N802
    count = c_ulonglong()
    _call("nvmlDeviceGetTotalEccErrors", handle, c_uint(error), c_uint(counter), byref(count))
    return count.value


def nvmlDeviceGetComputeRunningProcesses(handle: c_void_p) -> list[ProcessInfo]:  # noqa: N802
    return _list("nvmlDeviceGetComputeRunningProcesses_v3", ProcessInfo, handle, first=False)


def nvmlDeviceGetGraphicsRunningProcesses(handle: c_void_p) -> list[ProcessInfo]:  # noqa: N802
    return _list("nvmlDeviceGetGraphicsRunningProcesses_v3", ProcessInfo, handle, first=False)


def nvmlDeviceGetProcessUtilization(handle: c_void_p, since_us: int) -> list[ProcessUtilization]:  # noqa: N802
    since = c_ulonglong(since_us)
    return _list("nvmlDeviceGetProcessUtilization", ProcessUtilization, handle, since, first=True)


def _number(name: str, *arguments: Any) -> int:
    value = c_uint()
    _call(name, *arguments, byref(value))
    return value.value


def _list(name: str, kind: type[Any], handle: c_void_p, *others: Any, first: bool) -> list[Any]:
    """Return what a call lists: asked once for the length and once for the entries.

    `first` says whether the entries come before their number among the arguments.
    """
    count = c_uint(0)
    try:
        _call(name, handle, *((None, byref(count)) if first else (byref(count), None)), *others)
    except NVMLError as error:
        if error.value != INSUFFICIENT_SIZE:
            raise
    if count.value == 0:
        return []
    count = c_uint(count.value + SPARE_ENTRIES)
    entries = (kind * count.value)()
    _call(name, handle, *((entries, byref(count)) if first else (byref(count), entries)), *others)
    return list(entries[: count.value])


def _call(name: str, *arguments: Any) -> None:
    result = getattr(_library(), name)(*arguments)
    if result != 0:
        raise NVMLError(result)


@cache
def _library() -> ctypes.CDLL:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = str(error)
    raise Refused(f"there is no NVML: {reason}", remedy="it comes with NVIDIA's driver; see nvidia-smi")
