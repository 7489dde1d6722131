"""A thin, checked layer over CUDA's driver API, for the judge and for its runners: no torch, no numpy.

One Context per process and device; handles are freed with the process unless they say `close`. A call that
fails raises CudaError with CUDA's own name of the error. Arenas that processes share are in `memory`.
"""

from __future__ import annotations

import ctypes
import importlib
import uuid as uuids
from dataclasses import dataclass
from functools import cache
from typing import Any

from swarm.errors import Refused

Dim = tuple[int, int, int]
PARAM_BUFFER, PARAM_BUFFER_SIZE, PARAM_END = 1, 2, 0
"""CU_LAUNCH_PARAM_*: the keys of cuLaunchKernel's `extra`."""


class CudaError(Exception):
    """A driver call failed; `name` is CUDA's, for example CUDA_ERROR_ILLEGAL_ADDRESS."""

    def __init__(self, name: str, text: str, call: str) -> None:
        super().__init__(f"{call}: {name} ({text})" if text else f"{call}: {name}")
        self.name = name
        self.call = call


@cache
def bindings() -> Any:
    """Return cuda.bindings.driver; Refused where it or the driver is missing or too old."""
    try:
        module: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError as missing:
        raise Refused(f"cuda-bindings is missing: {missing}", remedy="pip install cuda-bindings") from None
    try:
        started = module.cuInit(0)[0]
    except RuntimeError as missing:  # the bindings found no libcuda.so.1
        raise Refused(f"no CUDA driver: {missing}", remedy="install NVIDIA's driver") from None
    if started != 0:
        raise Refused(f"CUDA does not start: {_name_of(module, started)}", remedy="see nvidia-smi")
    return module


def call(name: str, *arguments: Any) -> Any:
    """Call a driver function; return its results (None, one, or a tuple), or raise CudaError."""
    return check(getattr(bindings(), name)(*arguments), name)


def check(returned: Any, what: str = "CUDA") -> Any:
    """Return what follows the error code in what a binding returned, or raise CudaError."""
    error = returned[0]
    if error != 0:
        module = bindings()
        text = module.cuGetErrorString(error)[1]
        raise CudaError(_name_of(module, error), text.decode() if text else "", what)
    if len(returned) == 1:
        return None
    return returned[1] if len(returned) == 2 else tuple(returned[1:])


def count_devices() -> int:
    """Return how many GPUs this process sees."""
    return int(call("cuDeviceGetCount"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a GPU is, as its driver says."""

    ordinal: int
    name: str
    uuid: str
    """As NVML writes it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx."""
    arch: int
    """Compute capability without its dot, for example 90."""
    num_sms: int
    l2_bytes: int
    smem_per_block_max: int
    """Dynamic shared memory that a block may ask for."""
    memory_bytes: int
    max_persisting_l2_bytes: int


def facts(ordinal: int) -> Facts:
    """Read the facts of one GPU."""
    driver = bindings()
    device = call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("cuDeviceGetAttribute", key, device))

    return Facts(
        ordinal=ordinal,
        name=call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(),
        uuid=f"GPU-{uuids.UUID(bytes=bytes(call('cuDeviceGetUuid', device).bytes))}",
        arch=10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR"),
        num_sms=attribute("MULTIPROCESSOR_COUNT"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        smem_per_block_max=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        memory_bytes=int(call("cuDeviceTotalMem", device)),
        max_persisting_l2_bytes=attribute("MAX_PERSISTING_L2_CACHE_SIZE"),
    )


def ordinal_of(uuid: str) -> int:
    """Return the ordinal of the GPU with this UUID; Refused if this process does not see it."""
    seen = [facts(ordinal).uuid for ordinal in range(count_devices())]
    if uuid not in seen:
        raise Refused(f"no GPU {uuid} among {', '.join(seen) or 'none'}", remedy="see CUDA_VISIBLE_DEVICES")
    return seen.index(uuid)


class Context:
    """The primary context of one GPU, current in the thread that made it."""

    def __init__(self, gpu: int | str = 0) -> None:
        """`gpu` is an ordinal or a UUID."""
        ordinal = ordinal_of(gpu) if isinstance(gpu, str) else gpu
        self.facts = facts(ordinal)
        self._device = call("cuDeviceGet", ordinal)
        self.handle = call("cuDevicePrimaryCtxRetain", self._device)
        self.make_current()

    def make_current(self) -> None:
        """Make it the context of the calling thread."""
        call("cuCtxSetCurrent", self.handle)

    def close(self) -> None:
        """Release it: what was allocated in it is freed."""
        if self.handle is not None:
            self.handle = None
            call("cuDevicePrimaryCtxRelease", self._device)

    def synchronize(self) -> None:
        """Wait for all work of this process on the GPU."""
        call("cuCtxSynchronize")

    def memory_bytes(self) -> tuple[int, int]:
        """Return (free, total) of the GPU."""
        free, total = call("cuMemGetInfo")
        return int(free), int(total)

    def load(self, cubin: bytes) -> Module:
        return Module(cubin)

    def allocate(self, nbytes: int) -> int:
        """Return the address of private memory; `free` gives it back."""
        return int(call("cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        call("cuMemFree", address)

    def reset_persisting_l2(self) -> None:
        """Make lines that were set to persist in the L2 ordinary again."""
        call("cuCtxResetPersistingL2Cache")


class Stream:
    """A queue of work that does not wait for the legacy default stream."""

    def __init__(self) -> None:
        self.handle = call("cuStreamCreate", bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)

    def synchronize(self) -> None:
        call("cuStreamSynchronize", self.handle)

    def is_done(self) -> bool:
        """Whether all that was queued has ended."""
        driver = bindings()
        error = driver.cuStreamQuery(self.handle)[0]
        if error == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        check((error,), "cuStreamQuery")
        return True

    def wait_for(self, event: Event) -> None:
        """Let later work wait for `event`."""
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def upload(self, address: int, host: int, nbytes: int) -> None:
        """Copy from host memory at address `host`; pageable memory may be reused on return."""
        call("cuMemcpyHtoDAsync", address, host, nbytes, self.handle)

    def download(self, host: int, address: int, nbytes: int) -> None:
        """Copy to host memory at address `host`; it is there after `synchronize`."""
        call("cuMemcpyDtoHAsync", host, address, nbytes, self.handle)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy within the GPU."""
        call("cuMemcpyDtoDAsync", to, source, nbytes, self.handle)

    def set_bytes(self, address: int, byte: int, nbytes: int) -> None:
        """Fill memory with one byte."""
        call("cuMemsetD8Async", address, byte, nbytes, self.handle)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the GPU and wait until they are there."""
        if data:
            held = ctypes.create_string_buffer(data, len(data))
            self.upload(address, ctypes.addressof(held), len(data))
            self.synchronize()

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy bytes from the GPU, after all that was queued before."""
        if not nbytes:
            return b""
        held = ctypes.create_string_buffer(nbytes)
        self.download(ctypes.addressof(held), address, nbytes)
        self.synchronize()
        return held.raw


class Event:
    """A mark in a stream; with `timing`, one to measure from and to."""

    def __init__(self, *, timing: bool = True) -> None:
        flags = bindings().CUevent_flags
        self.handle = call(
            "cuEventCreate", flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        )

    def record(self, stream: Stream) -> None:
        call("cuEventRecord", self.handle, stream.handle)

    def synchronize(self) -> None:
        call("cuEventSynchronize", self.handle)

    def us_since(self, start: Event) -> float:
        """Return the microseconds from `start` to here; both must be over."""
        return float(call("cuEventElapsedTime", start.handle, self.handle)) * 1e3


class Packed:
    """Kernel parameters in one block, laid out as the kernel's parameter table says."""

    def __init__(self, data: bytes) -> None:
        self._data = ctypes.create_string_buffer(data, max(len(data), 1))
        self._size = ctypes.c_size_t(len(data))
        self._extra = (ctypes.c_void_p * 5)(
            PARAM_BUFFER, self.address, PARAM_BUFFER_SIZE, ctypes.addressof(self._size), PARAM_END
        )
        self.extra = ctypes.addressof(self._extra)

    @property
    def address(self) -> int:
        """Where the block lies: a parameter may be changed there between launches."""
        return ctypes.addressof(self._data)


class Module:
    """A loaded cubin."""

    def __init__(self, cubin: bytes) -> None:
        self.handle = call("cuModuleLoadData", cubin)

    def function(self, symbol: str) -> Function:
        return Function(call("cuModuleGetFunction", self.handle, symbol.encode()), symbol)

    def variable(self, symbol: str) -> tuple[int, int]:
        """Return (address, bytes) of a __device__ variable."""
        address, nbytes = call("cuModuleGetGlobal", self.handle, symbol.encode())
        return int(address), int(nbytes)

    def close(self) -> None:
        call("cuModuleUnload", self.handle)


class Function:
    """A kernel of a module."""

    def __init__(self, handle: Any, symbol: str) -> None:
        self.handle = handle
        self.symbol = symbol
        self._launch = bindings().cuLaunchKernel
        self._launch_ex = bindings().cuLaunchKernelEx

    def launch(self, grid: Dim, block: Dim, params: Packed, stream: Stream, smem_bytes: int = 0) -> None:
        """Queue it."""
        returned = self._launch(self.handle, *grid, *block, smem_bytes, stream.handle, 0, params.extra)
        if returned[0] != 0:
            check(returned, f"cuLaunchKernel of {self.symbol}")

    def launch_as(self, config: Any, params: Packed) -> None:
        """Queue it as a `launch_config` says."""
        returned = self._launch_ex(config, self.handle, 0, params.extra)
        if returned[0] != 0:
            check(returned, f"cuLaunchKernelEx of {self.symbol}")

    def attribute(self, name: str) -> int:
        """Return CU_FUNC_ATTRIBUTE_<name>."""
        key = getattr(bindings().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(call("cuFuncGetAttribute", key, self.handle))

    def set_attribute(self, name: str, value: int) -> None:
        """Set CU_FUNC_ATTRIBUTE_<name>, for example MAX_DYNAMIC_SHARED_SIZE_BYTES."""
        key = getattr(bindings().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        call("cuFuncSetAttribute", self.handle, key, value)

    def parameters(self) -> list[tuple[int, int]]:
        """Return (offset, size) of every parameter, hidden ones included."""
        driver = bindings()
        found: list[tuple[int, int]] = []
        while True:
            returned = driver.cuFuncGetParamInfo(self.handle, len(found))
            if returned[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
                return found
            offset, size = check(returned, "cuFuncGetParamInfo")
            found.append((int(offset), int(size)))

    def max_active_blocks(self, threads: int, smem_bytes: int) -> int:
        """Return how many blocks one multiprocessor holds at a time."""
        return int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle, threads, smem_bytes))

    def max_active_clusters(self, config: Any) -> int:
        """Return how many clusters of a `launch_config` the GPU holds at a time."""
        return int(call("cuOccupancyMaxActiveClusters", self.handle, config))


def launch_config(
    grid: Dim,
    block: Dim,
    stream: Stream,
    smem_bytes: int = 0,
    *,
    cluster: Dim | None = None,
    cooperative: bool = False,
    pdl: bool = False,
) -> Any:
    """Return a CUlaunchConfig for `Function.launch_as`; make it once, use it often."""
    driver = bindings()
    ids = driver.CUlaunchAttributeID
    attributes = []
    if cluster is not None:
        attribute = _attribute(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        size = attribute.value.clusterDim
        size.x, size.y, size.z = cluster
        attributes.append(attribute)
    if cooperative:
        attribute = _attribute(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        attribute.value.cooperative = 1
        attributes.append(attribute)
    if pdl:
        attribute = _attribute(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = smem_bytes
    config.hStream = stream.handle
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _attribute(key: Any) -> Any:
    attribute = bindings().CUlaunchAttribute()
    attribute.id = key
    return attribute


def _name_of(module: Any, error: Any) -> str:
    name = module.cuGetErrorName(error)[1]
    return name.decode() if name else f"CUDA error {int(error)}"
