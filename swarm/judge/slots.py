"""What surrounds the buffers of a call in the arena: guard bands, poison, cold caches.

Where they lie is `arena.place`'s to choose; what they hold is for `inputs` (before) and `check` (after) to
say.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

from swarm.definition import Definition, DType
from swarm.errors import Refused
from swarm.judge import elements
from swarm.judge.arena import Arena
from swarm.languages.native import Native
from swarm.problem import Problem
from swarm.workload import Workload

GUARD_BYTES = 4096
WALK_BYTES = 256 << 20
"""Read instead of flushed where the processor cannot flush: more than most last-level caches."""

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@contextmanager
def room_for(problem: Problem, workloads: Sequence[Workload]) -> Iterator[None]:
    """Name the largest of `workloads` if there is no memory for them."""
    try:
        yield
    except Refused as error:
        largest = max(workloads, key=problem.sol_bytes)
        sizes = ", ".join(f"{name} = {size}" for name, size in largest.axes.items())
        where = f"{problem.name}: workload {largest.uuid} with axes {sizes}"
        raise Refused(error.what, where=where, remedy=error.remedy) from None


@dataclass(frozen=True, slots=True)
class Shape:
    """One tensor that a call reads or writes."""

    name: str
    dtype: DType
    dims: tuple[int, ...]
    """In logical elements, as the definition says."""

    @property
    def stored(self) -> tuple[int, ...]:
        return elements.stored_shape(self.dims, self.dtype)

    @property
    def count(self) -> int:
        return math.prod(self.stored)

    @property
    def nbytes(self) -> int:
        return elements.stored_bytes(self.dims, self.dtype)

    @property
    def compared_nbytes(self) -> int:
        """Bytes of the same values in the dtype in which they are compared."""
        logical = 2 if self.dtype.is_packed else 1
        return logical * self.count * elements.comparable_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor at its place in an arena."""

    shape: Shape
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.shape.nbytes


def shapes(definition: Definition, axes: dict[str, int]) -> tuple[list[Shape | None], list[Shape]]:
    """Return what a call reads (None for a scalar) and writes, in the definition's order."""

    def one(name: str) -> Shape | None:
        dims = definition.shape(name, axes)
        return None if dims is None else Shape(name, definition.spec(name).dtype, dims)

    return [one(name) for name in definition.inputs], [
        one(name) or Shape(name, definition.spec(name).dtype, ()) for name in definition.outputs
    ]


class Memory:
    """A judge-owned arena seen as tensors, with a secret canary."""

    def __init__(self, arena: Arena, native: Native, rng: random.Random) -> None:
        self.arena = arena
        self._native = native
        self.bytes = torch.frombuffer(arena.memory, dtype=torch.uint8)
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        self._canary = torch.randint(0, 256, (GUARD_BYTES,), dtype=torch.uint8, generator=generator)

    def flat(self, buffer: Buffer) -> torch.Tensor:
        """Return a buffer as a flat tensor of stored elements."""
        return self.bytes[buffer.offset : buffer.end].view(elements.stored_dtype(buffer.shape.dtype))

    def compared(self, buffer: Buffer) -> torch.Tensor:
        """Return a buffer that holds expected values as a flat tensor."""
        end = buffer.offset + buffer.shape.compared_nbytes
        return self.bytes[buffer.offset : end].view(elements.comparable_dtype(buffer.shape.dtype))

    def guard(self, buffer: Buffer) -> None:
        """Write the canary before and after a buffer."""
        for band in self._bands(buffer):
            band.copy_(self._canary)

    def broken_guard(self, buffer: Buffer) -> int | None:
        """Return how many bytes outside the buffer something was written (negative: before it), or None."""
        before, after = self._bands(buffer)
        if same_bytes(before, self._canary) and same_bytes(after, self._canary):
            return None
        hit = torch.nonzero(after != self._canary)
        if len(hit):
            return int(hit[0]) + 1
        return int(torch.nonzero(before != self._canary)[-1]) - GUARD_BYTES

    def poison(self, buffer: Buffer, pattern: int) -> None:
        elements.as_bits(self.flat(buffer)).fill_(pattern)

    def chill(self, buffers: list[Buffer], *, dirty: bool = False) -> None:
        """Drop buffers and their guards from every cache of the machine.

        `dirty` then leaves the caches full of lines that must be written back first, as a memset does.
        """
        start = self.bytes.data_ptr()
        for buffer in buffers:
            begin = buffer.offset - GUARD_BYTES
            if not self._native.flush(start + begin, buffer.shape.nbytes + 2 * GUARD_BYTES):
                self._walk()
                break
        if dirty:
            _dirt().fill_(1)

    def _walk(self) -> None:
        dirt = _dirt()
        self._native.walk(dirt.data_ptr(), dirt.numel())

    def _bands(self, buffer: Buffer) -> tuple[torch.Tensor, torch.Tensor]:
        begin, end = buffer.offset, buffer.end
        return self.bytes[begin - GUARD_BYTES : begin], self.bytes[end : end + GUARD_BYTES]


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare two contiguous tensors as memory; ten times as fast as torch.equal."""
    size = one.numel() * one.element_size()
    assert size == other.numel() * other.element_size(), "tensors of different size"
    return bool(_memcmp(one.data_ptr(), other.data_ptr(), size) == 0)


@cache
def _dirt() -> torch.Tensor:
    return torch.zeros(WALK_BYTES, dtype=torch.uint8)
