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
from swarm.judge.cuda.driver import Context, Function, Packed, Stream
from swarm.judge.cuda.memory import Pinned
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits

THREADS = 256
TILE_BYTES = THREADS * 4 * 16
"""kernels.cu: what a block works on at a time."""
FINDING, STATS = struct.Struct("<6Q"), struct.Struct("<10Q")
PAIR = struct.Struct("<4Q2d2I")
WORD = (1 << 64) - 1
PLACE = (1 << 33) - 1
FIRST_TABLE_BYTES = 1 << 16


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


@dataclass(frozen=True, slots=True)
class Pair:
    """One output and where its expected values are."""

    shape: Shape
    got: int
    """Address."""
    expected: int
    """Address, of values in the comparable dtype."""
    poison: int


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
        self._num_sms = context.facts.num_sms
        self._fill = module.function("swarm_fill")
        self._inspect = module.function("swarm_inspect")
        self._compare = module.function("swarm_compare")
        self.stream = Stream()
        self._canary = secrets.randbits(64)
        self._table = _Staging(context, FIRST_TABLE_BYTES)
        self._results = _Staging(context, FIRST_TABLE_BYTES)

    def put(self, address: int, data: bytes) -> None:
        """Write bytes."""
        self.stream.write(address, data)

    def fill(self, regions: Sequence[bytes]) -> None:
        """Write the contents of all regions, and the guards around them."""
        self._launch(self._fill, regions, [_tiles_of(region) for region in regions], self._canary, 0)

    def inspect(self, regions: Sequence[bytes]) -> list[Finding]:
        """Check the guards of all regions and do what each one's mode says."""
        tiles = [_tiles_of(region) for region in regions]
        found = self._launch(self._inspect, regions, tiles, self._canary, FINDING.size)
        return [_finding(*item) for item in FINDING.iter_unpack(found)]

    def compare(self, pairs: Sequence[Pair], limits: Limits) -> list[Comparison]:
        """Compare outputs with what was expected of them."""
        rows, tiles = [], []
        for pair in pairs:
            mask = (1 << 8 * elements.stored_dtype(pair.shape.dtype).itemsize) - 1
            row = (pair.got, pair.expected, pair.shape.count, pair.poison & mask, limits.atol, limits.rtol)
            rows.append(PAIR.pack(*row, TYPES[pair.shape.dtype], limits.allow_negative_inf))
            tiles.append(max(1, -(-pair.shape.nbytes // TILE_BYTES)))
        found = self._launch(self._compare, rows, tiles, None, STATS.size)
        return [
            _comparison(pair.shape, *item) for pair, item in zip(pairs, STATS.iter_unpack(found), strict=True)
        ]

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

    def _launch(
        self,
        function: Function,
        rows: Sequence[bytes],
        tiles: Sequence[int],
        canary: int | None,
        result_bytes: int,
    ) -> memoryview:
        """Run a kernel over a table; return `result_bytes` per row."""
        firsts = [0]
        for count in tiles:
            firsts.append(firsts[-1] + count)
        total = firsts.pop()
        if not total:
            return memoryview(b"")
        table = b"".join(rows)
        where = self._table.upload(table + struct.pack(f"<{len(firsts)}I", *firsts), self.stream)
        nbytes = result_bytes * len(rows)
        results = self._results.zeroed(nbytes, self.stream)
        fields = [where, where + len(table), len(rows) | total << 32]
        fields += [] if canary is None else [canary]
        fields += [results] if result_bytes else []
        grid = min(total, self._num_sms * function.max_active_blocks(THREADS, 0))
        packed = Packed(struct.pack(f"<{len(fields)}Q", *fields))
        function.launch((grid, 1, 1), (THREADS, 1, 1), packed, self.stream)
        return self._results.download(nbytes, self.stream)


class _Staging:
    """A buffer on the GPU and its pinned twin on the host; grows as needed."""

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context = context
        self._host = Pinned(nbytes)
        self._device = context.allocate(nbytes)

    def upload(self, data: bytes, stream: Stream) -> int:
        """Copy `data` to the GPU; return its address there."""
        self._reserve(len(data))
        self._host.view[: len(data)] = data
        stream.upload(self._device, self._host.address, len(data))
        return self._device

    def zeroed(self, nbytes: int, stream: Stream) -> int:
        """Return the address of zeros on the GPU."""
        self._reserve(nbytes)
        if nbytes:
            stream.set_bytes(self._device, 0, nbytes)
        return self._device

    def download(self, nbytes: int, stream: Stream) -> memoryview:
        """Wait, and return what is on the GPU; valid until the next launch."""
        if nbytes:
            stream.download(self._host.address, self._device, nbytes)
        stream.synchronize()
        return self._host.view[:nbytes]

    def _reserve(self, nbytes: int) -> None:
        if nbytes <= self._host.nbytes:
            return
        self._context.free(self._device)
        self._host.close()
        self._host = Pinned(2 * nbytes)
        self._device = self._context.allocate(2 * nbytes)


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
    max_abs: int,
    max_rel: int,
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
        max_abs=_double(max_abs),
        max_rel=_double(max_rel),
        worst=PLACE - (worst & PLACE) if worst else -1,
        got_any=bool(found_any & 1),
        expected_any=bool(found_any & 2),
        strange=WORD - nan if nan else WORD - strange if strange else -1,
        poisoned=poisoned,
        first_poisoned=WORD - first_poisoned if first_poisoned else -1,
    )
    return Comparison(stats, WORD - invalid if invalid else -1)


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


assert REGION.size == 128, "contents.h and contents.py must agree"
