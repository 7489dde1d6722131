"""CUPTI's activity records by its C interface, under the names that cupti-python gives them.

For hosts that have torch, which brings the library, and not the package. Of a record only the fields that
we read are here; they lie where they have been since CUPTI's fourth kernel record, and a test looks.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

LIBRARY = "libcupti.so.13"
FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")
"""Where packages put it, below a folder of site packages."""
TOOLKIT = (Path("/usr/local/cuda/extras/CUPTI/lib64"), Path("/usr/local/cuda/lib64"))
MAX_LIMIT_REACHED = 12
"""There is no further record in the buffer."""


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    CONCURRENT_KERNEL = 10


class CuptiError(Exception):
    """CUPTI's answer was not 0."""


class _Record(ctypes.Structure):
    _fields_ = (("kind", c_uint32),)


class KernelRecord(ctypes.Structure):
    """The beginning of CUpti_ActivityKernel<n>."""

    _fields_ = (
        ("kind", c_uint32),
        ("config", c_uint32),
        ("partitioned", c_uint32 * 2),
        ("start", c_uint64),
        ("end", c_uint64),
        ("completed", c_uint64),
        ("deviceId", c_uint32),
        ("contextId", c_uint32),
        ("streamId", c_uint32),
        ("gridX", ctypes.c_int32),
        ("gridY", ctypes.c_int32),
        ("gridZ", ctypes.c_int32),
        ("block", ctypes.c_int32 * 3),
        ("memory", c_uint32 * 4),
        ("correlationId", c_uint32),
        ("gridId", ctypes.c_int64),
        ("name", c_char_p),
    )


class TransferRecord(ctypes.Structure):
    """The beginning of CUpti_ActivityMemcpy<n> and CUpti_ActivityMemset<n>."""

    _fields_ = (
        ("kind", c_uint32),
        ("what", c_uint32),
        ("bytes", c_uint64),
        ("start", c_uint64),
        ("end", c_uint64),
        ("deviceId", c_uint32),
        ("contextId", c_uint32),
        ("streamId", c_uint32),
        ("correlationId", c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Activity:
    kind: int
    name: str
    start: int
    end: int
    correlation_id: int
    grid_x: int = 0
    grid_y: int = 0
    grid_z: int = 0


Requested = Callable[[], tuple[int, int]]
Completed = Callable[[Sequence[Activity]], None]

_REQUEST = CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_COMPLETE = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class _Buffers:
    """What CUPTI writes into, kept while it does. One per process, as CUPTI's callbacks are."""

    def __init__(self, requested: Requested, completed: Completed) -> None:
        self._requested = requested
        self._completed = completed
        self._lent: dict[int, ctypes.Array[c_uint64]] = {}
        self.callbacks = _REQUEST(self._lend), _COMPLETE(self._take_back)

    def _lend(self, buffer: Sequence[int], size: Sequence[int], most: Sequence[int]) -> None:
        nbytes, count = self._requested()
        memory = (c_uint64 * (nbytes // 8))()  # aligned as CUPTI asks
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], most[0] = address, nbytes, count  # type: ignore[index]  # pointers, in effect

    def _take_back(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        memory = self._lent.pop(buffer)
        self._completed(_activities(ctypes.addressof(memory), valid))


_buffers: list[_Buffers] = []


def activity_register_callbacks(requested: Requested, completed: Completed) -> None:
    """Have buffers of the size that `requested` says filled and their records given to `completed`."""
    buffers = _Buffers(requested, completed)
    _call("cuptiActivityRegisterCallbacks", *buffers.callbacks)
    _buffers.append(buffers)  # CUPTI calls into it from now on


def activity_enable(kind: ActivityKind) -> None:
    _call("cuptiActivityEnable", c_uint32(kind))


def activity_disable(kind: ActivityKind) -> None:
    _call("cuptiActivityDisable", c_uint32(kind))


def activity_flush_all(flag: int) -> None:
    _call("cuptiActivityFlushAll", c_uint32(flag))


def _activities(buffer: int, valid: int) -> list[Activity]:
    found: list[Activity] = []
    record = c_void_p()
    following = _library().cuptiActivityGetNextRecord
    while True:
        result = following(c_void_p(buffer), c_size_t(valid), byref(record))
        if result == MAX_LIMIT_REACHED or record.value is None:
            return found
        _check(result)
        activity = _activity(record.value)
        if activity is not None:
            found.append(activity)


def _activity(address: int) -> Activity | None:
    kind = _Record.from_address(address).kind
    if kind == ActivityKind.CONCURRENT_KERNEL:
        kernel = KernelRecord.from_address(address)
        name = (kernel.name or b"").decode("utf-8", "replace")
        grid = kernel.gridX, kernel.gridY, kernel.gridZ
        return Activity(kind, name, kernel.start, kernel.end, kernel.correlationId, *grid)
    if kind in (ActivityKind.MEMCPY, ActivityKind.MEMSET):
        transfer = TransferRecord.from_address(address)
        return Activity(kind, "", transfer.start, transfer.end, transfer.correlationId)
    return None


def _call(name: str, *arguments: object) -> None:
    _check(getattr(_library(), name)(*arguments))


def _check(result: int) -> None:
    if result != 0:
        text = c_char_p()
        _library().cuptiGetResultString(c_uint32(result), byref(text))
        raise CuptiError(f"{(text.value or b'unknown').decode()} ({result})")


@cache
def _library() -> ctypes.CDLL:
    """Load CUPTI: torch's, a package's, the toolkit's, or what the loader finds."""
    site = [Path(entry) / folder / LIBRARY for entry in sys.path for folder in FOLDERS]
    toolkit = [folder / LIBRARY for folder in TOOLKIT]
    for path in (*site, *toolkit):
        if path.is_file():
            return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    try:
        return ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(f"there is no CUPTI: {error}") from error
