"""A plan walked over all workloads before a device is touched: every limit, and every kernel's parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from swarm.definition import Definition
from swarm.device import Device
from swarm.errors import BadInput
from swarm.languages.plan import Plan, Scalar
from swarm.languages.planning import WHERE
from swarm.languages.protocol import KernelInfo
from swarm.languages.resolve import resolve
from swarm.languages.steps import MAP_BYTES, Arg, Calls, Dim, KernelStep, Map, Pointer
from swarm.launch import OCCUPANCY
from swarm.workload import Workload

POINTER_BYTES = 8
REGISTERS = 65536
MAX_BLOCKS = 32
WARP = 32
RESERVED_SMEM = 1024
"""Of each block, for CUDA itself."""
SMEM_PER_BLOCK = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448, 103: 232448}
THREADS_PER_SM = {86: 1536, 87: 1536, 89: 1536, 120: 1536, 121: 1536}
L2_BYTES = {80: 40 << 20, 86: 6 << 20, 89: 72 << 20, 90: 50 << 20, 100: 126 << 20, 103: 126 << 20}
UNKNOWN_SMEM, UNKNOWN_L2, UNKNOWN_SMS, THREADS = 101376, 32 << 20, 128, 2048

Kernels = Mapping[tuple[int, str], KernelInfo]


@dataclass(frozen=True, slots=True)
class StaticFacts:
    """What is known of a device without asking it."""

    num_sms: int
    smem_per_block_max: int
    l2_bytes: int
    arch: int


def static_facts(device: Device) -> StaticFacts:
    """Return what the name of a device's architecture says."""
    arch = int("".join(filter(str.isdigit, device.arch)) or 0)
    return StaticFacts(
        num_sms=device.multiprocessors or UNKNOWN_SMS,
        smem_per_block_max=SMEM_PER_BLOCK.get(arch, UNKNOWN_SMEM),
        l2_bytes=L2_BYTES.get(arch, UNKNOWN_L2),
        arch=arch,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, as far as a plan depends on it."""

    axes: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    guesses: Mapping[str, Scalar]
    """Stand-ins for scalars that are drawn anew for every call; only arguments may depend on them."""


def cases(definition: Definition, workloads: Iterable[Workload]) -> Iterator[Case]:
    """Yield what a plan has to hold for."""
    scalars = {name: spec for name, spec in definition.inputs.items() if spec.is_scalar}
    for workload in workloads:
        known = workload.scalars
        yield Case(
            definition.resolve(workload),
            known,
            {name: 1.0 if spec.dtype.is_float else 1 for name, spec in scalars.items() if name not in known},
        )


def check_plan(plan: Plan, given: Iterable[Case], facts: StaticFacts, kernels: Iterable[KernelInfo]) -> None:
    """Raise BadInput for the first launch that the device or its kernel would not take."""
    known = {(info.variant, info.name): info for info in kernels}
    asks = any(function in json.dumps(plan.to_json()) for function in OCCUPANCY)
    checked: set[tuple[int, tuple[int, ...]]] = set()
    try:
        for case in given:
            for is_full in (False, True) if asks else (True,):
                calls = resolve(plan, case.axes, case.scalars, Guess(facts, known, is_full), case.guesses)
                for step in calls.steps:
                    if isinstance(step, KernelStep):
                        info = _info(known, step.variant, step.kernel, f"launch[{step.launch}]")
                        _check_block(step, info, facts)
                        sizes = tuple(_size(argument, calls) for argument in step.args)
                        if (step.launch, sizes) not in checked:
                            _check_parameters(plan, step, info, sizes)
                        checked.add((step.launch, sizes))
    except BadInput as error:
        raise BadInput(error.what, where=f"{WHERE}{error.where}", remedy=error.remedy) from None


class Guess:
    """Stands in for a device: each occupancy is either 1 or the most that registers and memory allow."""

    def __init__(self, facts: StaticFacts, kernels: Kernels, is_full: bool) -> None:
        self.num_sms = facts.num_sms
        self.smem_per_block_max = facts.smem_per_block_max
        self.l2_bytes = facts.l2_bytes
        self.arch = facts.arch
        self._facts = facts
        self._kernels = kernels
        self._is_full = is_full

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return self._most(kernel, variant, threads, smem) if self._is_full else 1

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        if not self._is_full:
            return 1
        blocks = self.cooperative_blocks(kernel, variant, threads, smem)
        return max(1, blocks // math.prod(cluster))

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return self.num_sms * self._most(kernel, variant, threads, smem)

    def _most(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        info = _info(self._kernels, variant, kernel, f"kernel {kernel}")
        return max(1, most_blocks(info, threads, smem, self._facts))


def most_blocks(info: KernelInfo, threads: int, smem: int, facts: StaticFacts) -> int:
    """Return how many blocks one multiprocessor holds at most."""
    warps = -(-threads // WARP)
    of_threads = THREADS_PER_SM.get(facts.arch, THREADS) // (WARP * warps)
    registers = WARP * -(-info.registers // 8) * 8
    of_registers = REGISTERS // registers // warps if registers else MAX_BLOCKS
    used = smem + info.static_smem_bytes + RESERVED_SMEM
    of_smem = (facts.smem_per_block_max + RESERVED_SMEM) // used
    return min(MAX_BLOCKS, of_threads, of_registers, of_smem)


def _info(kernels: Kernels, variant: int, kernel: str, where: str) -> KernelInfo:
    if (variant, kernel) not in kernels:
        raise BadInput(f"the sources have no kernel {kernel!r}", where=where, remedy="check its name")
    return kernels[variant, kernel]


def _check_block(step: KernelStep, info: KernelInfo, facts: StaticFacts) -> None:
    where = f"launch[{step.launch}]"
    threads = math.prod(step.block)
    if info.max_threads and threads > info.max_threads:
        raise BadInput(
            f"{threads} threads, and {step.kernel} is built for {info.max_threads}",
            where=f"{where}.block",
            remedy="raise its __launch_bounds__",
        )
    if step.smem + info.static_smem_bytes > facts.smem_per_block_max:
        raise BadInput(
            f"{step.smem} bytes beside the {info.static_smem_bytes} that {step.kernel} declares",
            where=f"{where}.smem",
            remedy=f"a block has at most {facts.smem_per_block_max}",
        )
    for n, length in enumerate(info.cluster or ()):
        if step.cluster is not None and step.cluster != info.cluster:
            raise BadInput(
                f"{step.cluster}, and {step.kernel} is built for {info.cluster}",
                where=f"{where}.cluster",
                remedy="leave it out, or remove __cluster_dims__",
            )
        if step.grid[n] % length:
            raise BadInput(
                f"{step.grid[n]} blocks, and {step.kernel} is built for clusters of {length}",
                where=f"{where}.grid[{n}]",
                remedy=f"use a multiple of {length}",
            )
    if not most_blocks(info, threads, step.smem, facts):
        raise BadInput(
            f"{threads} threads of {info.registers} registers",
            where=f"{where}.block",
            remedy=f"a multiprocessor has {REGISTERS} registers: use fewer threads or __launch_bounds__",
        )


def _check_parameters(plan: Plan, step: KernelStep, info: KernelInfo, sizes: tuple[int, ...]) -> None:
    where = f"launch[{step.launch}].args"
    if len(step.args) != len(info.parameters):
        raise BadInput(
            f"{len(step.args)} arguments, and {step.kernel} takes {len(info.parameters)}",
            where=where,
            remedy="give one for each parameter, in order",
        )
    for n, (size, (_, wanted)) in enumerate(zip(sizes, info.parameters, strict=True)):
        if size != wanted:
            planned = plan.launches[step.launch].args[n]
            raise BadInput(
                f"{planned.text!r} as {planned.form} has {size} bytes, {step.kernel} takes {wanted}",
                where=f"{where}[{n}]",
                remedy="let their types agree",
            )


def _size(given: Arg, calls: Calls) -> int:
    if isinstance(given, Pointer):
        return POINTER_BYTES
    return MAP_BYTES * len(calls.maps[given.name].offsets) if isinstance(given, Map) else len(given.data)
