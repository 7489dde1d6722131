"""Keeps the calls of one request apart, though all their slots lie open at once.

A call can neither begin with a later one's inputs, which are unreadable until it is that one's turn, nor
finish an earlier one's work, whose outputs must stay as they were when it ended. So nothing is gained by
doing the work of several calls in one, and work that nobody waits for is not there. Code on the host could
find the keys, which are in its own process; there this shows only what is not hidden with care.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarm.judge.cuda.driver import Function, Packed
from swarm.judge.cuda.memory import Pinned
from swarm.judge.cuda.wire import MAX_SLOTS

if TYPE_CHECKING:
    from swarm.judge.cuda.gpu import Gpu

RANGES = 16
"""veil.h: of one launch."""
THREADS, VECTOR_BYTES, BLOCKS_PER_SM = 256, 16, 8
SUMS = struct.Struct("<2Q")

Range = tuple[int, int]
"""(address, bytes)"""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Where the tensors of one slot lie."""

    inputs: tuple[Range, ...]
    outputs: tuple[Range, ...]


class Veil:
    """The veil of one process; it is put over a request, whose calls are then shown and noted in turn."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._veil, self._sum = gpu.function("swarm_veil"), gpu.function("swarm_sum")
        self._sums = gpu.context.allocate(MAX_SLOTS * SUMS.size)
        self._seen = Pinned(MAX_SLOTS * SUMS.size)
        self._rng = random.SystemRandom()
        self._slots: Sequence[Tensors] = ()
        self._keys: list[int] = []

    def begin(self, slots: Sequence[Tensors]) -> None:
        """Hide the inputs of all slots but the first."""
        self._slots = slots
        self._keys = [self._rng.getrandbits(64) for _ in slots]
        self._sum_key = self._rng.getrandbits(64)
        self._zero()
        for index in range(1, len(slots)):
            self.show(index)  # to XOR once hides what to XOR again shows

    def show(self, index: int) -> None:
        """Queue what makes the inputs of a slot readable; those of the first one always were."""
        if index:
            self._over(self._veil, self._slots[index].inputs, self._keys[index])

    def note(self, index: int) -> None:
        """Queue the sums of a slot's outputs, and their copy to where no later call can touch them."""
        self._add_up(index)
        at = index * SUMS.size
        self._gpu.copy_to_host(self._seen.address + at, self._sums + at, SUMS.size)

    def changed(self) -> int | None:
        """Wait for all work of this process; return the first slot whose outputs changed after its note."""
        count = len(self._slots)
        self._gpu.context.synchronize()
        noted = bytes(self._seen.view[: count * SUMS.size])
        self._zero()
        for index in range(count):
            self._add_up(index)
        self._gpu.copy_to_host(self._seen.address, self._sums, count * SUMS.size)
        self._gpu.context.synchronize()
        pairs = zip(SUMS.iter_unpack(noted), SUMS.iter_unpack(self._seen.view[: len(noted)]), strict=True)
        return next((index for index, (before, now) in enumerate(pairs) if before != now), None)

    def _zero(self) -> None:
        self._gpu.set_bytes(self._sums, 0, MAX_SLOTS * SUMS.size)

    def _add_up(self, index: int) -> None:
        self._over(self._sum, self._slots[index].outputs, self._sum_key, self._sums + index * SUMS.size)

    def _over(self, function: Function, ranges: Sequence[Range], key: int, *more: int) -> None:
        """Queue a kernel over ranges, a row of blocks for each."""
        for first in range(0, len(ranges), RANGES):
            part = ranges[first : first + RANGES]
            blank = [0] * (RANGES - len(part))
            addresses, sizes = [address for address, _ in part], [nbytes for _, nbytes in part]
            words = [*addresses, *blank, *sizes, *blank, key ^ first, *more]
            params = Packed(struct.pack(f"<{len(words)}Q", *words))
            most = self._gpu.context.facts.num_sms * BLOCKS_PER_SM
            blocks = min(most, -(-max(sizes) // (THREADS * VECTOR_BYTES)))
            self._gpu.queue(function, (max(1, blocks), len(part), 1), (THREADS, 1, 1), params)
