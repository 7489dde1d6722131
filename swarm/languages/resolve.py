"""What a launch plan comes to for given sizes and scalars on a given device.

Runs in the judge (dry, before the device is touched) and in the runner (for real), so it is pure and imports
neither torch nor pydantic. A mistake is BadInput that names the table, the key and the expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from swarm.errors import BadInput
from swarm.languages import limits, numbers, tensormaps
from swarm.languages.names import Names
from swarm.languages.plan import Argument, Launch, Memset, Param, Plan, Scalar, Scratch, Tensor
from swarm.languages.steps import (
    Arg,
    Calls,
    Dim,
    Facts,
    KernelStep,
    Map,
    MapSpec,
    MemsetStep,
    Pointer,
    Step,
    Value,
)

MAX_STEPS = 1024
"""Launches and memsets of one call: the queue of a stream holds about as many."""
MAX_SCRATCH_BYTES = 1 << 42
NO_GUESSES: Mapping[str, Scalar] = {}


def resolve(
    plan: Plan,
    axes: Mapping[str, int],
    scalars: Mapping[str, Scalar],
    facts: Facts,
    guesses: Mapping[str, Scalar] = NO_GUESSES,
) -> Calls:
    """Return what one call does; BadInput for the first thing that the plan or the device does not allow.

    `guesses` stand in for scalars that are not known yet; only arguments may depend on them.
    """
    return _Resolution(plan, axes, scalars, facts, guesses).calls()


class _Resolution:
    """One pass over a plan."""

    def __init__(
        self,
        plan: Plan,
        axes: Mapping[str, int],
        scalars: Mapping[str, Scalar],
        facts: Facts,
        guesses: Mapping[str, Scalar],
    ) -> None:
        self.plan = plan
        self.facts = facts
        self.guesses = guesses
        known = {
            "num_sms": facts.num_sms,
            "smem_per_block_max": facts.smem_per_block_max,
            "l2_bytes": facts.l2_bytes,
            "arch": facts.arch,
            **plan.constants,
            **axes,
            **scalars,
        }
        self.names = tuple(Names({**known, **numeric(params)}) for params in plan.variants)
        self.sizes = {
            tensor.buffer: _tensor_bytes(tensor, {**plan.constants, **axes})
            for tensor in plan.tensors.values()
        }

    def calls(self) -> Calls:
        names = self.names[0].asking(self._occupancy(None))
        scratch: dict[str, int] = {}
        fills: list[Step] = []
        for name, memory in self.plan.scratch.items():
            where = f"scratch.{name}"
            size = _scratch_bytes(memory, names, where)
            scratch[f"scratch:{name}"] = self.sizes[f"scratch:{name}"] = size
            if memory.fill is not None and size:
                value, width = numbers.pattern(memory.fill, memory.dtype, f"{where}.fill")
                fills.append(MemsetStep(f"scratch:{name}", 0, size, value, width))
        maps: dict[str, MapSpec] = {}
        for name, item in self.plan.maps.items():
            if self._needs(name):
                maps[name] = tensormaps.resolve(item, names, self.sizes, f"tensormap.{name}")
                limits.check_feature(self.facts, "a tensor map", f"tensormap.{name}")
                if item.in_memory:
                    scratch[f"map:{name}"] = tensormaps.nbytes(maps[name])
        filled = {step.buffer for step in fills if isinstance(step, MemsetStep)}
        filled |= {buffer for buffer in scratch if buffer.startswith("map:")}
        return Calls((*fills, *self._steps()), scratch, frozenset(filled), maps)

    def _needs(self, tensormap: str) -> bool:
        """Whether a launch of this call has the map as an argument."""
        wanted = {Argument("map", tensormap), Argument("pointer", f"map:{tensormap}")}
        return any(
            wanted & set(launch.args) and self._happens(launch.when, self._names(number), f"launch[{number}]")
            for number, launch in enumerate(self.plan.launches)
        )

    def _steps(self) -> list[Step]:
        steps: list[Step] = []
        for number in range(len(self.plan.launches) + 1):
            for place, memset in enumerate(self.plan.memsets):
                if memset.before == number:
                    steps += self._memset(memset, f"memset[{place}]")
            if number < len(self.plan.launches):
                self._launch(number, steps)
        if not any(isinstance(step, KernelStep) for step in steps):
            whens = [launch.when for launch in self.plan.launches if launch.when is not None]
            told = self._names(0).told(*whens)
            raise BadInput(f"nothing is launched {told}".rstrip(), where="launch", remedy="let a `when` hold")
        return steps

    def _launch(self, number: int, steps: list[Step]) -> None:
        launch = self.plan.launches[number]
        where = f"launch[{number}]"
        names = self._names(number)
        if not self._happens(launch.when, names, where):
            return
        count = 1 if launch.repeat is None else names.integer(launch.repeat, f"{where}.repeat")
        if count < 0 or len(steps) + count > MAX_STEPS:
            raise BadInput(
                f"{launch.repeat!r} is {count}, and a call has {len(steps)} steps before it",
                where=f"{where}.repeat",
                remedy=f"a call may have 0 to {MAX_STEPS} launches and memsets",
            )
        for index in range(count):
            inner = names if launch.repeat is None else names.having(launch.index, index)
            follows_kernel = bool(steps) and isinstance(steps[-1], KernelStep)
            step = self._step(launch, number, inner, pdl=launch.pdl and follows_kernel)
            try:
                limits.check_step(step, self.facts, where)
            except BadInput as error:
                told = inner.told(*launch.grid, *launch.block, launch.smem, *(launch.cluster or ()))
                raise BadInput(
                    f"{error.what} {told}".rstrip(), where=error.where, remedy=error.remedy
                ) from None
            steps.append(step)

    def _step(self, launch: Launch, number: int, names: Names, *, pdl: bool) -> KernelStep:
        where = f"launch[{number}]"
        guessing = names.guessing(self.guesses)
        cluster = None if launch.cluster is None else _dim(launch.cluster, names, f"{where}.cluster")
        return KernelStep(
            kernel=launch.kernel,
            variant=launch.variant,
            grid=_dim(launch.grid, names, f"{where}.grid"),
            block=_dim(launch.block, names, f"{where}.block"),
            smem=names.natural(launch.smem, f"{where}.smem"),
            cluster=cluster,
            cooperative=launch.cooperative,
            pdl=pdl,
            args=tuple(
                _argument(argument, guessing, f"{where}.args[{place}]")
                for place, argument in enumerate(launch.args)
            ),
            launch=number,
        )

    def _memset(self, memset: Memset, where: str) -> list[Step]:
        names = self.names[0].asking(self._occupancy(None))
        if not self._happens(memset.when, names, where):
            return []
        whole = self.sizes[memset.buffer]
        offset = names.natural(memset.offset, f"{where}.offset")
        size = whole - offset if memset.bytes is None else names.natural(memset.bytes, f"{where}.bytes")
        if size < 0 or offset + size > whole:
            raise BadInput(
                f"bytes {offset} to {offset + size} are not in {memset.buffer}, which has {whole}",
                where=where,
                remedy="set bytes inside it",
            )
        return [MemsetStep(memset.buffer, offset, size, memset.value)] if size else []

    def _names(self, number: int) -> Names:
        return self.names[self.plan.launches[number].variant].asking(self._occupancy(number))

    def _happens(self, when: str | None, names: Names, where: str) -> bool:
        return when is None or bool(names.number(when, f"{where}.when"))

    def _occupancy(self, current: int | None) -> dict[str, Any]:
        """Return the functions of a kernel, which mean the current launch or the first of that name."""
        return {
            "max_active_blocks": lambda kernel: self._ask("max_active_blocks", kernel, current),
            "max_active_clusters": lambda kernel: self._ask("max_active_clusters", kernel, current),
        }

    def _ask(self, function: str, kernel: str, current: int | None) -> int:
        number = launch_of(self.plan.launches, kernel, current)
        launch = self.plan.launches[number]
        where = f"launch[{number}]"
        names = self.names[launch.variant]
        if launch.repeat is not None:
            names = names.having(launch.index, 0)
        threads = math.prod(_dim(launch.block, names, f"{where}.block"))
        smem = names.natural(launch.smem, f"{where}.smem")
        limits.check_block(threads, smem, self.facts, where)
        if function == "max_active_blocks":
            return self.facts.max_active_blocks(launch.kernel, launch.variant, threads, smem)
        cluster = (1, 1, 1) if launch.cluster is None else _dim(launch.cluster, names, f"{where}.cluster")
        return self.facts.max_active_clusters(launch.kernel, launch.variant, threads, smem, cluster)


def launch_of(launches: tuple[Launch, ...], kernel: str, current: int | None) -> int:
    """Return the launch that an occupancy call means.

    `kernel` is the current one, and so is its own name; another name is the first launch of that kernel.
    """
    same = [n for n, item in enumerate(launches) if squeezed(item.kernel) == squeezed(kernel)]
    if current is not None and (kernel == "kernel" or current in same):
        return current
    if not same:
        raise BadInput(f"no launch of a kernel {kernel!r}", remedy="name a kernel of this plan")
    return same[0]


def numeric(params: Mapping[str, Param]) -> dict[str, int | float]:
    """Return the parameters that expressions may use."""
    return {name: value for name, value in params.items() if not isinstance(value, str)}


def squeezed(kernel: str) -> str:
    """Return a kernel's name without what does not matter in it."""
    return re.sub(r"\s+", "", kernel)


def _dim(texts: tuple[str, ...], names: Names, where: str) -> Dim:
    x, y, z = [names.positive(text, f"{where}[{n}]") for n, text in enumerate(texts)] + [1] * (3 - len(texts))
    return x, y, z


def _argument(argument: Argument, names: Names, where: str) -> Arg:
    match argument.form:
        case "pointer":
            return Pointer(argument.text)
        case "map":
            return Map(argument.text)
        case kind:
            return Value(numbers.pack(names.number(argument.text, where), kind, f"{where} {argument.text!r}"))


def _tensor_bytes(tensor: Tensor, axes: Mapping[str, int]) -> int:
    shape = [int(dim) if dim.isdecimal() else axes[dim] for dim in tensor.shape]
    return -(-math.prod(shape) * numbers.bits(tensor.dtype) // 8)


def _scratch_bytes(memory: Scratch, names: Names, where: str) -> int:
    shape = [names.natural(text, f"{where}.shape[{n}]") for n, text in enumerate(memory.shape)]
    size = -(-math.prod(shape) * numbers.bits(memory.dtype) // 8)
    if size > MAX_SCRATCH_BYTES:
        raise BadInput(
            f"{size} bytes {names.told(*memory.shape)}", where=f"{where}.shape", remedy="use less scratch"
        )
    return size
