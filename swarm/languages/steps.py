"""What a plan comes to for one call: concrete launches and memsets, the memory they need, their tensor maps.

Plain data for the runner; imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Dim = tuple[int, int, int]

MAP_BYTES = 128
"""A CUtensorMap."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is the address of a buffer: `input:x`, `output:y`, `scratch:p` or `map:a`."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Value:
    """An argument that is a number, as its bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Map:
    """An argument that is a tensor map, or an array of them, by value."""

    name: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """An argument as it was recorded, but for the addresses in it: each is (byte, buffer, offset)."""

    data: bytes
    words: tuple[tuple[int, str, int], ...] = ()
    maps: tuple[tuple[int, str, int], ...] = ()
    """Those of tensor maps."""


Arg = Pointer | Value | Map | Recorded


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One launch."""

    kernel: str
    """As the manifest writes it."""
    variant: int
    grid: Dim
    block: Dim
    smem: int
    """Dynamic shared memory in bytes."""
    cluster: Dim | None
    cooperative: bool
    pdl: bool
    args: tuple[Arg, ...]
    launch: int
    """The number of its [[launch]]."""


@dataclass(frozen=True, slots=True)
class MemsetStep:
    """Elements of `width` bytes set to one value."""

    buffer: str
    offset: int
    nbytes: int
    value: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Bytes copied within the device; only recordings have them."""

    to: str
    to_offset: int
    source: str
    source_offset: int
    nbytes: int


Step = KernelStep | MemsetStep | CopyStep


@dataclass(frozen=True, slots=True)
class MapSpec:
    """Tensor maps of one memory that differ by their offset only; names are those of CUDA's enums."""

    buffer: str
    type: str
    dims: tuple[int, ...]
    """In elements, innermost first."""
    strides: tuple[int, ...]
    """In bytes, without the innermost."""
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    interleave: str
    l2: str
    oob: str
    offsets: tuple[int, ...]
    """Bytes from the start of the buffer; one for each map."""


@dataclass(frozen=True, slots=True)
class Calls:
    """A plan for given axes and scalars on a given device."""

    steps: tuple[Step, ...]
    """All of a call, in order; fills of scratch memory come first."""
    scratch: Mapping[str, int]
    """Bytes of what must be allocated, by buffer: `scratch:p`, and `map:a` for maps in device memory."""
    filled: frozenset[str]
    """Buffers of `scratch` that need no poison: a step fills them, or the launcher writes them."""
    maps: Mapping[str, MapSpec]


class Facts(Protocol):
    """What a plan may ask of a device."""

    @property
    def num_sms(self) -> int: ...

    @property
    def smem_per_block_max(self) -> int: ...

    @property
    def l2_bytes(self) -> int: ...

    @property
    def arch(self) -> int:
        """Compute capability without its dot, for example 90."""

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        """Return how many blocks fit on one multiprocessor."""

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        """Return how many clusters fit on the device."""

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        """Return how many blocks a cooperative launch may have."""
