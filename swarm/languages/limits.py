"""What a device allows of one launch, said in words instead of CUDA_ERROR_INVALID_VALUE."""

from __future__ import annotations

import math

from swarm.errors import BadInput
from swarm.languages.steps import Facts, KernelStep

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_CLUSTER = 16
"""Above 8 a cluster is not portable: the launcher asks for that by itself."""
HOPPER = 90


def check_step(step: KernelStep, facts: Facts, where: str) -> None:
    """Raise BadInput, naming key and value, if the device cannot launch this."""
    for key, values, most in (("grid", step.grid, MAX_GRID), ("block", step.block, MAX_BLOCK)):
        for n, (value, limit) in enumerate(zip(values, most, strict=True)):
            if value > limit:
                raise BadInput(f"{value}", where=f"{where}.{key}[{n}]", remedy=f"use at most {limit}")
    threads = math.prod(step.block)
    check_block(threads, step.smem, facts, where)
    if step.cluster is not None:
        _check_cluster(step, step.cluster, facts, where)
    if step.pdl:
        check_feature(facts, "pdl", where)
    if step.cooperative:
        fitting = facts.cooperative_blocks(step.kernel, step.variant, threads, step.smem)
        if math.prod(step.grid) > fitting:
            raise BadInput(
                f"a cooperative launch of {math.prod(step.grid)} blocks; {fitting} of them fit on the device",
                where=f"{where}.grid",
                remedy="use num_sms * max_active_blocks(kernel)",
            )


def check_block(threads: int, smem: int, facts: Facts, where: str) -> None:
    """Raise BadInput if no device or not this one runs such a block."""
    if threads > MAX_THREADS:
        raise BadInput(f"{threads} threads", where=f"{where}.block", remedy=f"use at most {MAX_THREADS}")
    if smem > facts.smem_per_block_max:
        raise BadInput(
            f"{smem} bytes", where=f"{where}.smem", remedy=f"a block has at most {facts.smem_per_block_max}"
        )


def check_feature(facts: Facts, what: str, where: str) -> None:
    """Raise BadInput if the device is older than Hopper."""
    if facts.arch < HOPPER:
        raise BadInput(f"{what} on sm_{facts.arch}", where=where, remedy="it needs sm_90 or newer")


def _check_cluster(step: KernelStep, cluster: tuple[int, int, int], facts: Facts, where: str) -> None:
    check_feature(facts, "a cluster", f"{where}.cluster")
    size = math.prod(cluster)
    if size > MAX_CLUSTER:
        raise BadInput(f"{size} blocks", where=f"{where}.cluster", remedy=f"use at most {MAX_CLUSTER}")
    for n, (blocks, length) in enumerate(zip(step.grid, cluster, strict=True)):
        if blocks % length:
            raise BadInput(
                f"{blocks} blocks in clusters of {length}",
                where=f"{where}.grid[{n}]",
                remedy=f"use a multiple of {length}",
            )
