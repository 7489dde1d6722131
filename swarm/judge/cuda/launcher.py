"""Launches a plan in the runner: arguments are packed and tensor maps encoded before a call begins.

What is left for the call itself is one driver call for each launch or memset. Which launches there are, and
with which numbers, is said by `languages.resolve`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarm.errors import BadInput
from swarm.judge.cuda import driver
from swarm.judge.cuda.driver import Context, CudaError, Function, Packed, Stream
from swarm.judge.cuda.replay_tape import Tape
from swarm.languages.plan import Plan, Scalar
from swarm.languages.resolve import resolve
from swarm.languages.steps import (
    MAP_BYTES,
    Calls,
    CopyStep,
    Dim,
    KernelStep,
    Map,
    MapSpec,
    MemsetStep,
    Pointer,
    Recorded,
    Step,
)

PORTABLE_CLUSTER = 8
KEPT_CALLS = 256
MEMSETS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call at its addresses, ready to be queued any number of times."""

    queue: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]
    """Driver functions and their arguments."""
    steps: tuple[str, ...]
    """What each of them is, for messages."""
    held: tuple[object, ...]
    """Memory that the arguments point to."""


@dataclass(slots=True)
class _Kernel:
    function: Function
    parameters: tuple[tuple[int, int], ...]
    smem: int = 0
    """The most dynamic shared memory that it was allowed so far."""
    is_wide: bool = False
    """Whether it may have a cluster of more than eight blocks."""


class Launcher:
    """The kernels of one candidate on one stream; it is also what the plan may ask of the device."""

    def __init__(
        self,
        context: Context,
        stream: Stream,
        plan: Plan | Tape,
        cubins: Mapping[int, bytes] | Sequence[bytes],
        kernels: Sequence[Mapping[str, Any]],
    ) -> None:
        """`cubins[k]` is build variant k, if that has kernels; `kernels` is what their files say of them."""
        self.num_sms = context.facts.num_sms
        self.smem_per_block_max = context.facts.smem_per_block_max
        self.l2_bytes = context.facts.l2_bytes
        self.arch = context.facts.arch
        self._stream = stream
        self._plan = plan
        self._known: dict[object, Calls] = {}
        self._occupancies: dict[object, int] = {}
        modules = {n: context.load(cubins[n]) for n in sorted({info["variant"] for info in kernels})}
        self._kernels = {
            (info["variant"], info["name"]): _Kernel(
                modules[info["variant"]].function(info["symbol"]),
                tuple((offset, size) for offset, size in info["parameters"]),
            )
            for info in kernels
        }
        for kernel in self._kernels.values():
            driver.call("cuFuncLoad", kernel.function.handle)  # else the first launch would

    def resolve(self, axes: Mapping[str, int], scalars: Mapping[str, Scalar]) -> Calls:
        """Return what a call with these sizes does; BadInput where the device does not allow it."""
        key = (tuple(axes.items()), tuple((name, type(value), value) for name, value in scalars.items()))
        if key not in self._known:
            if len(self._known) >= KEPT_CALLS:
                self._known.clear()
            self._known[key] = (
                self._plan.resolve(axes, scalars)
                if isinstance(self._plan, Tape)
                else resolve(self._plan, axes, scalars, self)
            )
        return self._known[key]

    def prepare(self, calls: Calls, addresses: Mapping[str, int]) -> Prepared:
        """Pack the arguments of a call with buffers at `addresses`; maps in device memory are written now."""
        maps = {name: encoded(spec, addresses[spec.buffer], name) for name, spec in calls.maps.items()}
        for name, data in maps.items():
            if f"map:{name}" in calls.scratch:
                self._stream.write(addresses[f"map:{name}"], data)
        queue: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        held: list[object] = []
        for step in calls.steps:
            if isinstance(step, MemsetStep):
                queue.append(self._memset(step, addresses))
                continue
            if isinstance(step, CopyStep):
                to = addresses[step.to] + step.to_offset
                source = addresses[step.source] + step.source_offset
                copy = driver.bindings().cuMemcpyDtoDAsync
                queue.append((copy, (to, source, step.nbytes, self._stream.handle)))
                continue
            kernel = self._allowed(step)
            packed = Packed(_parameters(step, kernel.parameters, addresses, maps))
            config = driver.launch_config(
                step.grid,
                step.block,
                self._stream,
                step.smem,
                cluster=step.cluster,
                cooperative=step.cooperative,
                pdl=step.pdl,
            )
            held += [packed, config]
            launch = driver.bindings().cuLaunchKernelEx
            queue.append((launch, (config, kernel.function.handle, 0, packed.extra)))
        return Prepared(tuple(queue), tuple(map(_described, calls.steps)), tuple(held))

    def enqueue(self, prepared: Prepared) -> None:
        """Queue one call; CudaError names the launch that the driver refuses."""
        for number, (function, arguments) in enumerate(prepared.queue):
            returned = function(*arguments)
            if returned[0] != 0:
                driver.check(returned, prepared.steps[number])

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        """Return how many blocks fit on one multiprocessor, as the driver says."""
        key = (kernel, variant, threads, smem)
        if key not in self._occupancies:
            found = self._kernel(kernel, variant)
            _allow_smem(found, smem, kernel)
            self._occupancies[key] = found.function.max_active_blocks(threads, smem)
        return self._occupancies[key]

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        """Return how many clusters fit on the device, as the driver says."""
        key = (kernel, variant, threads, smem, cluster)
        if key not in self._occupancies:
            found = self._kernel(kernel, variant)
            _allow_smem(found, smem, kernel)
            _allow_cluster(found, cluster)
            grid = (cluster[0] * self.num_sms, cluster[1], cluster[2])
            config = driver.launch_config(grid, (threads, 1, 1), self._stream, smem, cluster=cluster)
            try:
                self._occupancies[key] = found.function.max_active_clusters(config)
            except CudaError as error:
                raise BadInput(
                    f"max_active_clusters of {kernel} with clusters of {cluster}: {error}",
                    where="launch",
                    remedy="let its launch have a cluster that fits",
                ) from None
        return self._occupancies[key]

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        """Return how many blocks a cooperative launch may have."""
        return self.num_sms * self.max_active_blocks(kernel, variant, threads, smem)

    def _kernel(self, name: str, variant: int) -> _Kernel:
        if (variant, name) not in self._kernels:
            raise BadInput(f"no kernel {name!r} in build {variant}", where="launch", remedy="check its name")
        return self._kernels[variant, name]

    def _allowed(self, step: KernelStep) -> _Kernel:
        """Return the kernel of a step after asking for what it needs beyond the ordinary."""
        kernel = self._kernel(step.kernel, step.variant)
        _allow_smem(kernel, step.smem, f"launch[{step.launch}].smem")
        if step.cluster is not None:
            _allow_cluster(kernel, step.cluster)
        return kernel

    def _memset(
        self, step: MemsetStep, addresses: Mapping[str, int]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        function = getattr(driver.bindings(), MEMSETS[step.width])
        address = addresses[step.buffer] + step.offset
        return function, (address, step.value, step.nbytes // step.width, self._stream.handle)


def _allow_smem(kernel: _Kernel, smem: int, where: str) -> None:
    if smem <= kernel.smem:
        return
    try:
        kernel.function.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", smem)
    except CudaError as error:
        remedy = "with what the kernel declares it is more than a block may have"
        raise BadInput(f"{smem} bytes are refused: {error}", where=where, remedy=remedy) from None
    kernel.smem = smem


def _allow_cluster(kernel: _Kernel, cluster: Dim) -> None:
    if math.prod(cluster) > PORTABLE_CLUSTER and not kernel.is_wide:
        kernel.function.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
        kernel.is_wide = True


def _parameters(
    step: KernelStep,
    parameters: tuple[tuple[int, int], ...],
    addresses: Mapping[str, int],
    maps: Mapping[str, bytes],
) -> bytes:
    """Return the arguments of a launch, each where the kernel's own table says."""
    where = f"launch[{step.launch}].args"
    if len(step.args) != len(parameters):
        raise BadInput(
            f"{len(step.args)} arguments, and {step.kernel} takes {len(parameters)}",
            where=where,
            remedy="give one for each parameter",
        )
    block = bytearray(max((offset + size for offset, size in parameters), default=0))
    for number, (argument, (offset, size)) in enumerate(zip(step.args, parameters, strict=True)):
        if isinstance(argument, Pointer):
            data = addresses[argument.buffer].to_bytes(8, "little")
        elif isinstance(argument, Recorded):
            data = _relocated(argument, addresses)
        else:
            data = maps[argument.name] if isinstance(argument, Map) else argument.data
        if len(data) != size:
            raise BadInput(
                f"{len(data)} bytes for a parameter of {size}",
                where=f"{where}[{number}]",
                remedy="let their types agree",
            )
        block[offset : offset + size] = data
    return bytes(block)


def _relocated(argument: Recorded, addresses: Mapping[str, int]) -> bytes:
    """Return a recorded argument with this call's addresses."""
    data = bytearray(argument.data)
    for at, buffer, offset in argument.words:
        data[at : at + 8] = (addresses[buffer] + offset).to_bytes(8, "little")
    for at, buffer, offset in argument.maps:
        tensor_map = driver.bindings().CUtensorMap()
        ctypes.memmove(int(tensor_map.getPtr()), bytes(data[at : at + MAP_BYTES]), MAP_BYTES)
        driver.call("cuTensorMapReplaceAddress", tensor_map, addresses[buffer] + offset)
        data[at : at + MAP_BYTES] = _bytes_of(tensor_map)
    return bytes(data)


def encoded(spec: MapSpec, address: int, name: str) -> bytes:
    """Return the bytes of the maps of one table, one after the other."""
    cuda = driver.bindings()
    try:
        tensor_map = driver.call(
            "cuTensorMapEncodeTiled",
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{spec.type}"),
            len(spec.dims),
            address + spec.offsets[0],
            [cuda.cuuint64_t(dim) for dim in spec.dims],
            [cuda.cuuint64_t(stride) for stride in spec.strides],
            [cuda.cuuint32_t(length) for length in spec.box],
            [cuda.cuuint32_t(stride) for stride in spec.element_strides],
            getattr(cuda.CUtensorMapInterleave, f"CU_TENSOR_MAP_{spec.interleave}"),
            getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_{spec.swizzle}"),
            getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_{spec.l2}"),
            getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_{spec.oob}"),
        )
        found = [_bytes_of(tensor_map)]
        for offset in spec.offsets[1:]:
            driver.call("cuTensorMapReplaceAddress", tensor_map, address + offset)
            found.append(_bytes_of(tensor_map))
    except CudaError as error:
        raise BadInput(
            f"refused for dims {spec.dims}, strides {spec.strides}, box {spec.box}: {error}",
            where=f"tensormap.{name}",
            remedy="see the rules of cuTensorMapEncodeTiled",
        ) from None
    return b"".join(found)


def _bytes_of(tensor_map: Any) -> bytes:
    return ctypes.string_at(int(tensor_map.getPtr()), MAP_BYTES)


def _described(step: Step) -> str:
    if isinstance(step, KernelStep):
        return f"launch[{step.launch}] of {step.kernel}"
    return f"memset of {step.buffer}" if isinstance(step, MemsetStep) else f"copy to {step.to}"
