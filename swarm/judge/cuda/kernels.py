"""The judge's own kernels as Python methods: fill, inspect and compare what lies in its arenas.

A request costs one upload of a table and one launch, however many buffers it names. All methods return when
the GPU is done: another process goes on from there.
"""

from __future__ import annotations

import ctypes
import itertools
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
from swarm.judge.cuda.driver import Context, Function, Packed, Stream
from swarm.judge.cuda.memory import Pinned
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits

THREADS = 256
TILE_BYTES = THREADS * 4 * 16
"""kernels.cu: what a block works on at a time."""
FINDING, STATS = struct.Struct("<6Q"), struct.Struct("<2Q2d6Q")
PAIR = struct.Struct("<4Q2d2I")
WORD = (1 << 64) - 1
PLACE = (1 << 33) - 1
FIRST_TABLE_BYTES = 1 << 16


class Table:
    """The rows of one launch, ready to be copied; one that is launched again is not copied again."""

    def __init__(self, rows: Sequence[bytes], tiles: Sequence[int]) -> None:
        """`tiles` says how many blocks' worth of work each row is."""
        firsts = [0, *itertools.accumulate(tiles)]
        self.count = len(rows)
        self.tiles = firsts.pop()
        joined = b"".join(rows)
        self.firsts_at = len(joined)
        self.data = joined + struct.pack(f"<{len(firsts)}I", *firsts)


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
        regions, pairs = _Staging(context), _Staging(context)
        self._fill = _Kernel(module.function("swarm_fill"), sms, regions, canary)
        self._inspect = _Kernel(module.function("swarm_inspect"), sms, regions, canary, _Staging(context))
        self._compare = _Kernel(module.function("swarm_compare"), sms, pairs, None, _Staging(context))

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


class _Kernel:
    """A kernel that takes a table: how it is launched, and where its table and its results lie."""

    def __init__(
        self,
        function: Function,
        num_sms: int,
        table: _Staging,
        canary: int | None,
        results: _Staging | None = None,
    ) -> None:
        self._function = function
        self._most_blocks = num_sms * function.max_active_blocks(THREADS, 0)
        self._table, self._results = table, results
        self._canary = [] if canary is None else [canary]
        self._fields = struct.Struct(f"<{3 + len(self._canary) + (results is not None)}Q")
        self._packed = Packed(bytes(self._fields.size))

    def queue(self, table: Table, result_bytes: int, stream: Stream) -> None:
        """Launch it over a table; `result_bytes` per row come back."""
        if not table.tiles:
            return
        where = self._table.hold(table, stream)
        results = [] if self._results is None else [self._results.zeroed(result_bytes * table.count, stream)]
        counts = table.count | table.tiles << 32
        fields = self._fields.pack(where, where + table.firsts_at, counts, *self._canary, *results)
        ctypes.memmove(self._packed.address, fields, len(fields))
        grid = (min(table.tiles, self._most_blocks), 1, 1)
        self._function.launch(grid, (THREADS, 1, 1), self._packed, stream)
        if self._results is not None:
            self._results.download(result_bytes * table.count, stream)

    def results(self, table: Table, result_bytes: int) -> bytes:
        """Return what came back, after the stream was waited for."""
        assert self._results is not None, "it returns nothing"
        return self._results.read(result_bytes * table.count)

    @property
    def function(self) -> Function:
        return self._function


class _Staging:
    """A buffer on the GPU and its pinned twin on the host; grows as needed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._host = Pinned(FIRST_TABLE_BYTES)
        self._device = context.allocate(FIRST_TABLE_BYTES)
        self._held: Table | None = None

    def hold(self, table: Table, stream: Stream) -> int:
        """Have a table on the GPU; return its address there."""
        if self._held is not table:
            self._reserve(len(table.data))
            self._host.view[: len(table.data)] = table.data
            stream.upload(self._device, self._host.address, len(table.data))
            self._held = table
        return self._device

    def zeroed(self, nbytes: int, stream: Stream) -> int:
        """Return the address of zeros on the GPU."""
        self._reserve(nbytes)
        stream.set_bytes(self._device, 0, nbytes)
        return self._device

    def download(self, nbytes: int, stream: Stream) -> None:
        stream.download(self._host.address, self._device, nbytes)

    def read(self, nbytes: int) -> bytes:
        return bytes(self._host.view[:nbytes])

    def _reserve(self, nbytes: int) -> None:
        if nbytes <= self._host.nbytes:
            return
        self._context.free(self._device)
        self._host.close()
        self._host = Pinned(2 * nbytes)
        self._device = self._context.allocate(2 * nbytes)


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
