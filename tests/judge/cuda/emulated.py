"""A CUDA driver over host memory, for the judge's own kernels alone: `emulator.h` runs them.

It stands at the seam of cuda.bindings.driver, so everything above it is the product: tables, launches,
arenas, what a sitting makes of the results. Addresses are the process's own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from swarm.judge.cuda import driver, kernels
from swarm.languages.cuda_toolkit import all_headers

FOLDER = Path(__file__).parent
PRODUCT = Path(kernels.__file__).parent
EMULATOR = FOLDER.parents[1] / "gpu"
FLAGS = ("-std=c++20", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-w")
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 3,
    "L2_CACHE_SIZE": 1 << 20,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_PERSISTING_L2_CACHE_SIZE": 1 << 19,
}


def build(folder: Path) -> ctypes.CDLL:
    """Compile the kernels for the CPU."""
    library = folder / "emulated.so"
    includes = [f"-I{folder}" for folder in (PRODUCT, EMULATOR, *all_headers())]
    subprocess.run(["g++", *FLAGS, *includes, str(FOLDER / "emulated.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def install(patch: pytest.MonkeyPatch, library: ctypes.CDLL) -> None:
    """Let CUDA's bindings be these, and their cubins be the library."""
    library.launch.argtypes = (ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)
    patch.setitem(sys.modules, "cuda.bindings.driver", bindings(library))
    patch.setattr(kernels, "cubin", lambda source, arch, cache: b"")
    driver.bindings.cache_clear()


def uninstall() -> None:
    driver.bindings.cache_clear()


def bindings(library: ctypes.CDLL) -> ModuleType:
    """Return a module with the calls that the judge's kernels and arenas need."""
    held: dict[int, Any] = {}
    module: Any = ModuleType("cuda.bindings.driver")

    def allocate(nbytes: int) -> int:
        memory = ctypes.create_string_buffer(nbytes + 512)
        address = -(-ctypes.addressof(memory) // 512) * 512
        held[address] = memory
        return address

    def free(address: int) -> tuple[int]:
        del held[int(address)]
        return (0,)

    def move(to: int, source: int, nbytes: int, stream: object) -> tuple[int]:
        ctypes.memmove(to, source, nbytes)
        return (0,)

    def set_bytes(address: int, byte: int, nbytes: int, stream: object) -> tuple[int]:
        ctypes.memset(address, byte, nbytes)
        return (0,)

    def launch(function: bytes, blocks: int, rows: int, *rest: Any) -> tuple[int]:
        extra = ctypes.cast(rest[-1], ctypes.POINTER(ctypes.c_void_p))
        assert library.launch(function, blocks, rows, extra[1]) == 0, f"no kernel {function!r}"
        return (0,)

    def export(handle: int, kind: object, flags: int) -> tuple[int, int]:
        return 0, os.open("/dev/null", os.O_RDONLY)

    def attribute(key: str, device: int) -> tuple[int, int]:
        return 0, ATTRIBUTES[key.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def nothing(*arguments: Any) -> tuple[int]:
        return (0,)

    module.CUdevice_attribute = _Names()
    module.CUstream_flags = _Names()
    module.CUmemAllocationHandleType = _Names()
    module.CUmemAllocationType = _Names()
    module.CUmemLocationType = _Names()
    module.CUmemAccess_flags = _Names()
    module.CUmemAllocationGranularity_flags = _Names()
    module.CUmemAllocationProp = lambda: SimpleNamespace(location=SimpleNamespace())
    module.CUmemAccessDesc = lambda: SimpleNamespace(location=SimpleNamespace())
    module.cuInit = module.cuCtxSetCurrent = module.cuStreamSynchronize = nothing
    module.cuMemMap = module.cuMemSetAccess = module.cuMemUnmap = module.cuMemRelease = nothing
    module.cuDeviceGet = lambda ordinal: (0, ordinal)
    module.cuDeviceGetName = lambda length, device: (0, b"emulated\0")
    module.cuDeviceGetUuid = lambda device: (0, SimpleNamespace(bytes=bytes(16)))
    module.cuDeviceTotalMem = lambda device: (0, 1 << 30)
    module.cuDeviceGetAttribute = attribute
    module.cuDevicePrimaryCtxRetain = lambda device: (0, 1)
    module.cuDevicePrimaryCtxRelease = nothing
    module.cuMemGetInfo = lambda: (0, 1 << 30, 1 << 30)
    module.cuMemAlloc = module.cuMemCreate = lambda nbytes, *rest: (0, allocate(nbytes))
    module.cuMemHostAlloc = lambda nbytes, flags: (0, allocate(nbytes))
    module.cuMemFree = module.cuMemFreeHost = free
    module.cuMemAddressReserve = lambda size, alignment, address, flags: (0, allocate(size))
    module.cuMemAddressFree = lambda address, size: free(address)
    module.cuMemGetAllocationGranularity = lambda properties, flag: (0, 4096)
    module.cuMemCreate = lambda size, properties, flags: (0, 1)
    module.cuMemExportToShareableHandle = export
    module.cuMemcpyHtoDAsync = module.cuMemcpyDtoHAsync = module.cuMemcpyDtoDAsync = move
    module.cuMemsetD8Async = set_bytes
    module.cuStreamCreate = lambda flags: (0, 1)
    module.cuModuleLoadData = lambda image: (0, 1)
    module.cuModuleGetFunction = lambda handle, name: (0, name)
    module.cuLaunchKernel = launch
    module.cuLaunchKernelEx = nothing
    module.cuOccupancyMaxActiveBlocksPerMultiprocessor = lambda *arguments: (0, 1)
    return module


def names() -> Any:
    """Return an enumeration of any names."""
    return _Names()


class _Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name
