"""The trusted native code (native.cpp) as Python functions: flush, walk, calibration kernels.

The runners load the same library for their clock and their call site.
"""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum
from pathlib import Path

from swarm.errors import Refused
from swarm.languages import toolchain

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O2", "-march=native", "-fopenmp", "-shared", "-fPIC", "-Wall")
BUILD_S = 120.0
BUILD_BYTES = 4 << 30


class Pattern(IntEnum):
    """How a bandwidth kernel touches memory."""

    READ = 0
    WRITE = 1
    COPY = 2
    STREAMED_WRITE = 3
    """Past the caches, so that memory is not read first."""
    STREAMED_COPY = 4


class Native:
    """The library, loaded into this process; addresses and sizes are the caller's to get right."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.swarm_walk.restype = ctypes.c_uint64
        self._library.swarm_bandwidth.restype = ctypes.c_int64
        self._library.swarm_fma_float32.restype = ctypes.c_int64

    def flush(self, address: int, size: int) -> bool:
        """Drop a range from every cache; False if this processor cannot, then walk a large buffer."""
        return bool(self._library.swarm_flush(ctypes.c_void_p(address), ctypes.c_size_t(size)))

    def walk(self, address: int, size: int) -> None:
        """Read a range line by line."""
        self._library.swarm_walk(ctypes.c_void_p(address), ctypes.c_size_t(size))

    def bandwidth_ns(self, pattern: Pattern, to: int, source: int, size: int, threads: int) -> int:
        """Return the time to move `size` bytes (a multiple of 512) once."""
        return int(
            self._library.swarm_bandwidth(
                int(pattern),
                ctypes.c_void_p(to),
                ctypes.c_void_p(source),
                ctypes.c_size_t(size),
                threads,
            )
        )

    def fma_float32(self, rounds: int, threads: int) -> tuple[int, float]:
        """Return (ns, FLOPs) of `rounds` rounds of independent multiply-adds."""
        flops = ctypes.c_double()
        ns = self._library.swarm_fma_float32(ctypes.c_int64(rounds), threads, ctypes.byref(flops))
        return int(ns), flops.value


def load(cache: Path) -> Native:
    """Build the library, unless `cache` has it, and load it."""
    built = toolchain.build(
        {SOURCE.name: SOURCE.read_bytes()},
        FLAGS,
        cache,
        timeout_s=BUILD_S,
        memory_bytes=BUILD_BYTES,
        cores=sorted(os.sched_getaffinity(0)),
    )
    if isinstance(built, toolchain.NotBuilt):
        raise Refused(f"the compiler failed on our own {SOURCE.name}: {built.exit}: {built.log[-400:]}")
    return Native(built.path)
