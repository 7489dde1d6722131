"""The GPUs of this host as devices, from what their driver says. Makes no context and imports no torch."""

from __future__ import annotations

import os

from swarm.device import Device, why_no_gpu
from swarm.errors import Refused
from swarm.judge.cuda import driver
from swarm.languages.cuda_toolkit import arch_for
from swarm.peaks_table import model_of

CORES_PER_GPU = 4
"""At most: the judge, its reference, its runner, and one for the driver's own threads."""
SPARE_SHARE = 4
"""One of so many cores, at least, is nobody's: compilers, agents and the watcher stay there."""


def cuda_devices(available: frozenset[int] | None = None) -> list[Device]:
    """Return the GPUs that this process sees, in CUDA's order; Refused, with the reason, if it sees none.

    Each has cores of its own, the same for every process that may use the same cores and sees the same GPUs.
    """
    if reason := why_no_gpu():
        raise Refused(reason, remedy="`swarm doctor` says what this machine can do")
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    found = [driver.facts(ordinal) for ordinal in range(driver.count_devices())]
    if not found:
        raise Refused("CUDA sees no GPU", remedy="see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return [
        Device(
            kind="cuda",
            model=model_of(facts.name),
            uuid=facts.uuid,
            cores=share,
            arch=arch_for(*divmod(facts.arch, 10)),
            memory_bytes=facts.memory_bytes,
            multiprocessors=facts.num_sms,
        )
        for facts, share in zip(found, shares(cores, len(found)), strict=True)
    ]


def shares(cores: list[int], count: int) -> list[tuple[int, ...]]:
    """Deal `cores` to `count` GPUs, disjoint as long as there is one for each beside the spare ones."""
    spare = max(1, len(cores) // SPARE_SHARE)
    free = cores[spare:] or cores
    each = min(CORES_PER_GPU, max(1, len(free) // count))
    return [tuple(free[(each * index + core) % len(free)] for core in range(each)) for index in range(count)]
