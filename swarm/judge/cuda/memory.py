"""GPU memory that the judge owns and other processes map: one file descriptor, valid across namespaces.

Physical memory is made and mapped by CUDA's virtual memory management; the descriptor travels over a
socket. Legacy IPC handles are refused between some sandboxes. No torch, no numpy: runners import this.
"""

from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any, Self

from swarm.errors import Refused
from swarm.judge.cuda.driver import Context, CudaError, bindings, call

MAX_SHARE = 0.85
"""Of the device's memory that is free now."""
KEPT_FACTOR, KEPT_BYTES = 4, 1 << 28
"""A larger arena is kept for smaller work up to this many times over, or up to so many bytes."""


class DeviceArena:
    """`size` bytes of GPU memory; `fd` lets another process map them with `MappedArena`."""

    def __init__(self, context: Context, size: int) -> None:
        self.properties = _properties(context.facts.ordinal)
        granularity = _granularity(self.properties)
        self.size = -(-max(size, 1) // granularity) * granularity
        self.fd = -1
        free, _ = context.memory_bytes()
        if self.size > MAX_SHARE * free:
            raise Refused(
                f"buffers of {self.size / 2**20:.0f} MiB do not fit {MAX_SHARE:.0%} of the "
                f"{free / 2**20:.0f} MiB of free memory of {context.facts.name}",
                remedy="use smaller workloads, or a GPU with more memory",
            )
        handle = call("cuMemCreate", self.size, self.properties, 0)
        try:
            kind = bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            self._range = _Range(handle, self.size, context.facts.ordinal, granularity)
            self.fd = int(call("cuMemExportToShareableHandle", handle, kind, 0))
        finally:
            call("cuMemRelease", handle)  # the mapping and the descriptor keep the memory
        self.address = self._range.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap it; the memory is free once no other process maps it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._range.close()


def sized(context: Context, arena: DeviceArena | None, size: int) -> DeviceArena:
    """Return `arena` if it serves for `size` bytes, else a new one in its place.

    The old one is closed first, for both may not fit beside each other; if the new one is refused, `arena`
    stays closed, and the next call makes another.
    """
    if arena is not None:
        if arena.fd >= 0 and size <= arena.size <= max(KEPT_FACTOR * size, KEPT_BYTES):
            return arena
        arena.close()
    return DeviceArena(context, size)


class MappedArena:
    """An arena of another process, seen through the descriptor that it sent; takes the descriptor over."""

    def __init__(self, context: Context, fd: int, size: int) -> None:
        kind = bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self.size = size
        granularity = _granularity(_properties(context.facts.ordinal))
        try:
            handle = call("cuMemImportFromShareableHandle", fd, kind)
        finally:
            os.close(fd)
        try:
            self._range = _Range(handle, size, context.facts.ordinal, granularity)
        finally:
            call("cuMemRelease", handle)
        self.address = self._range.address

    def close(self) -> None:
        self._range.close()


class _Range:
    """A range of addresses under which physical memory is mapped."""

    def __init__(self, handle: Any, size: int, ordinal: int, alignment: int) -> None:
        driver = bindings()
        self._size = size
        self.address = int(call("cuMemAddressReserve", size, alignment, 0, 0))
        try:
            call("cuMemMap", self.address, size, 0, handle, 0)
            access = driver.CUmemAccessDesc()
            access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            access.location.id = ordinal
            access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            call("cuMemSetAccess", self.address, size, [access], 1)
        except CudaError:
            call("cuMemAddressFree", self.address, size)
            raise

    def close(self) -> None:
        call("cuMemUnmap", self.address, self._size)
        call("cuMemAddressFree", self.address, self._size)


class TensorBytes:
    """GPU memory at an address, in the form that torch takes a tensor of bytes from."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class Pinned:
    """Host memory that the GPU copies to and from without a detour."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = max(nbytes, 1)
        self.address = int(call("cuMemHostAlloc", self.nbytes, 0))
        self.view = memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")

    def close(self) -> None:
        self.view.release()
        call("cuMemFreeHost", self.address)


def _properties(ordinal: int) -> Any:
    driver = bindings()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    properties.requestedHandleTypes = (
        driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    )
    return properties


def _granularity(properties: Any) -> int:
    flags = bindings().CUmemAllocationGranularity_flags
    return int(call("cuMemGetAllocationGranularity", properties, flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
