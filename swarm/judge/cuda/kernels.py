"""The judge's own kernels as Python methods: fill, inspect and compare what lies in its arenas.

A request costs one upload of a table and one launch, however many buffers it names. All methods return when
the GPU is done: another process goes on from there.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from swarm.definition import DType
from swarm.judge import elements
from swarm.judge.check import Stats
from swarm.judge.cuda.contents import REGION, TYPES
from swarm.judge.cuda.cubins import Source, cubin
from swarm.judge.cuda.driver import Context, Packed, Stream
from swarm.judge.cuda.tables import THREADS, Staging, Table, TableKernel
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits

TILE_BYTES = THREADS * 4 * 16
"""kernels.cu: what a block works on at a time."""
FINDING, STATS = struct.Struct("<6Q"), struct.Struct("<2Q2d6Q")
PAIR = struct.Struct("<4Q2d2I")
WORD = (1 << 64) - 1
PLACE = (1 << 33) - 1


class Regions(Table):
    """Buffers to fill or to inspect."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        super().__init__(rows, [_tiles_of(row) for row in rows])


@dataclass(frozen=True, slots=True)
class Finding:
    """What inspecting one buffer found."""

    outside: int | None
    """How many bytes outside the buffer something was written (negative: before it), or None."""
    changed: int | None
    """The first byte of an input that is not what was put there, or None."""
    is_strange: bool
    """Whether an output that was looked at lightly holds anything that is not finite."""
    digest: tuple[int, int]


CLEAN = Finding(None, None, False, (0, 0))


@dataclass(frozen=True, slots=True)
class Pair:
    """One output and where its expected values are."""

    shape: Shape
    got: int
    """Address."""
    expected: int
    """Address, of values in the comparable dtype."""
    poison: int


class Pairs(Table):
    """Outputs to compare."""

    def __init__(self, pairs: Sequence[Pair], limits: Limits) -> None:
        self.shapes = [pair.shape for pair in pairs]
        super().__init__(
            [_packed(pair, limits) for pair in pairs],
            [max(1, -(-pair.shape.nbytes // TILE_BYTES)) for pair in pairs],
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing one pair found."""

    stats: Stats
    invalid: int
    """Where what was expected is not finite itself, or -1."""


class Kernels:
    """The judge's kernels in one context; made once, used for all that lies in its arenas."""

    def __init__(self, context: Context, cache: Path) -> None:
        arch = context.facts.arch
        module = context.load(cubin(Source.JUDGE, arch, cache))
        self.cubin = cubin(Source.RUNNER, arch, cache)
        """What runners load."""
        self.stream = Stream()
        canary = secrets.randbits(64)
        sms = context.facts.num_sms
        self._nothing = module.function("swarm_nothing"), Packed(b"")
        regions, pairs = Staging(context), Staging(context)
        self._fill = TableKernel(module.function("swarm_fill"), sms, regions, canary)
        self._inspect = TableKernel(module.function("swarm_inspect"), sms, regions, canary, Staging(context))
        self._compare = TableKernel(module.function("swarm_compare"), sms, pairs, None, Staging(context))

    def nothing(self) -> None:
        """Go to the GPU and come back."""
        function, params = self._nothing
        function.launch((1, 1, 1), (1, 1, 1), params, self.stream)
        self.stream.synchronize()

    def put(self, address: int, data: bytes) -> None:
        """Write bytes."""
        self.stream.write(address, data)

    def fill(self, regions: Regions) -> None:
        """Write the contents of all regions, and the guards around them."""
        self._fill.queue(regions, 0, self.stream)
        self.stream.synchronize()

    def inspect(self, regions: Regions) -> list[Finding]:
        """Check the guards of all regions and do what each one's mode says."""
        self._inspect.queue(regions, FINDING.size, self.stream)
        self.stream.synchronize()
        return _findings(self._inspect.results(regions, FINDING.size))

    def compare(self, pairs: Pairs) -> list[Comparison]:
        """Compare outputs with what was expected of them."""
        return self.inspect_and_compare(None, pairs)[1]

    def inspect_and_compare(
        self, regions: Regions | None, pairs: Pairs
    ) -> tuple[list[Finding], list[Comparison]]:
        """Do both, and wait once."""
        if regions is not None:
            self._inspect.queue(regions, FINDING.size, self.stream)
        self._compare.queue(pairs, STATS.size, self.stream)
        self.stream.synchronize()
        found = [] if regions is None else _findings(self._inspect.results(regions, FINDING.size))
        rows = STATS.iter_unpack(self._compare.results(pairs, STATS.size))
        return found, [_comparison(shape, *row) for shape, row in zip(pairs.shapes, rows, strict=True)]

    def number(self, address: int, index: int, dtype: DType) -> int | float:
        """Read one logical element of a stored tensor."""
        logical = 2 if dtype.is_packed else 1
        stored = elements.stored_dtype(dtype)
        data = self.stream.read(address + index // logical * stored.itemsize, stored.itemsize)
        values = elements.comparable(torch.frombuffer(bytearray(data), dtype=stored), dtype)
        found: int | float = values[index % logical].item()
        return found

    def expected_number(self, address: int, index: int, dtype: DType) -> int | float:
        """Read one element of values in the comparable dtype."""
        kind = elements.comparable_dtype(dtype)
        data = self.stream.read(address + index * kind.itemsize, kind.itemsize)
        found: int | float = torch.frombuffer(bytearray(data), dtype=kind)[0].item()
        return found


def _packed(pair: Pair, limits: Limits) -> bytes:
    dtype = pair.shape.dtype
    mask = (1 << 8 * elements.stored_dtype(dtype).itemsize) - 1
    return PAIR.pack(
        *(pair.got, pair.expected, pair.shape.count, pair.poison & mask),
        *(limits.atol, limits.rtol, TYPES[dtype], limits.allow_negative_inf),
    )


def _findings(found: bytes) -> list[Finding]:
    if found.count(0) == len(found):
        return [CLEAN] * (len(found) // FINDING.size)
    return [_finding(*item) for item in FINDING.iter_unpack(found)]


def _tiles_of(region: bytes) -> int:
    nbytes = int.from_bytes(region[8:16], "little")
    return -(-(2 * GUARD_BYTES + -(-nbytes // 16) * 16) // TILE_BYTES)


def _finding(before: int, inside: int, after: int, strange: int, one: int, other: int) -> Finding:
    outside = None
    if after:
        outside = (WORD - after) + 1
    elif before:
        outside = (before - 1) - GUARD_BYTES
    return Finding(outside, WORD - inside if inside else None, bool(strange), (one, other))


def _comparison(
    shape: Shape,
    bad: int,
    worst: int,
    max_abs: float,
    max_rel: float,
    nan: int,
    strange: int,
    poisoned: int,
    first_poisoned: int,
    invalid: int,
    found_any: int,
) -> Comparison:
    logical = 2 if shape.dtype.is_packed else 1
    stats = Stats(
        shape.count * logical,
        bad=bad,
        max_abs=max_abs,
        max_rel=max_rel,
        worst=PLACE - (worst & PLACE) if worst else -1,
        got_any=bool(found_any & 1),
        expected_any=bool(found_any & 2),
        strange=WORD - nan if nan else WORD - strange if strange else -1,
        poisoned=poisoned,
        first_poisoned=WORD - first_poisoned if first_poisoned else -1,
    )
    return Comparison(stats, WORD - invalid if invalid else -1)


assert REGION.size == 128, "contents.h and contents.py must agree"
