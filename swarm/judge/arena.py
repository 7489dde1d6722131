"""Memory that the judge owns and a runner fills: one sealed memfd, mapped by both.

Which tensor, poison or guard lies where is the judge's to decide; `place` only keeps ranges apart.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm.errors import Refused

ALIGNMENT = 256
PAGE = mmap.PAGESIZE
MAX_SHARE = 0.85
"""Of the memory that is free now: above it the machine would swap or kill."""
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4


class Arena:
    """`size` bytes, all pages present; a runner that maps them can neither shrink nor grow them."""

    def __init__(self, size: int) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        free = free_bytes()
        if self.size > MAX_SHARE * free:
            raise Refused(
                f"buffers of {self.size / 2**20:.0f} MiB do not fit {MAX_SHARE:.0%} of the "
                f"{free / 2**20:.0f} MiB of free memory",
                remedy="use smaller workloads, or a machine with more memory",
            )
        self.fd = os.memfd_create("swarm-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(self.fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
        self.memory = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; tensors over it keep their mapping until they are gone."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def place(sizes: Sequence[int], room: int, guard: int, dice: random.Random) -> list[int]:
    """Return a random offset, a multiple of 256, for each size, `guard` bytes away from all others.

    ValueError if they do not fit; `needed` says how much room they take at least.
    """
    slack = (room - needed(sizes, guard)) // ALIGNMENT
    if slack < 0:
        raise ValueError(f"{sizes} with guards of {guard} need {needed(sizes, guard)} bytes, not {room}")
    cuts = sorted(dice.randint(0, slack) for _ in sizes)
    order = list(range(len(sizes)))
    dice.shuffle(order)
    offsets = [0] * len(sizes)
    used = 0
    for cut, index in zip(cuts, order, strict=True):
        offsets[index] = used + _up(guard) + cut * ALIGNMENT
        used += _up(guard) + _up(sizes[index] + guard)
    return offsets


def needed(sizes: Sequence[int], guard: int) -> int:
    """Return the least room in which `place` can place `sizes`."""
    return sum(_up(guard) + _up(size + guard) for size in sizes)


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def free_bytes() -> int:
    """Return what this machine can still give to a new process without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
