"""Secret contents on a GPU: each input's source as the numbers that contents.h generates it from.

The names' rules and the sequence of draws are the CPU's (`kinds`, `inputs`). What no generator makes element
by element comes from a pool that only judge and reference see: files as they are, and rows that depend on
themselves, which are changed for each call.
"""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch

from swarm.definition import DType
from swarm.judge import elements
from swarm.judge.inputs import OUTLIER_STRIDE, Draw, Draws, Spread, file_bytes, seed_number
from swarm.judge.kinds import Form, Kind, draw_rows, kind_of
from swarm.problem import Problem
from swarm.workload import CustomInput, SafetensorsInput, Workload

TYPES = {
    DType.FLOAT64: 0,
    DType.FLOAT32: 1,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 3,
    DType.FLOAT8_E4M3FN: 4,
    DType.FLOAT8_E5M2: 5,
    DType.FLOAT4_E2M1: 6,
    DType.FLOAT4_E2M1FN_X2: 6,
    DType.INT64: 7,
    DType.INT32: 8,
    DType.INT16: 9,
    DType.INT8: 10,
    DType.BOOL: 11,
}
"""elements.h: Type."""
FORMS = {
    Form.NORMAL: 0,
    Form.UNIFORM: 1,
    Form.INTEGERS: 2,
    Form.BERNOULLI: 3,
    Form.CLAMPED: 4,
    Form.POSITIVE: 5,
    Form.SINE: 6,
    Form.COSINE: 7,
    Form.CAUSAL: 8,
}
POOL, PATTERN = 9, 10
"""contents.h: Kind, with FORMS."""
ROW_FORMS = {Form.SOFTMAX: 11, Form.CUMSUM: 12}
"""Those whose rows come from a pool, changed for each call; elements are float32, float16 or bfloat16."""
AS_DRAWN = 0
SPREADS = {Spread.PLAIN: 1, Spread.SCALED: 1, Spread.OUTLIERS: 2, Spread.STRUCTURED: 3}
"""contents.h: Spread."""
REGION = struct.Struct("<8QqQQ2df5I")
"""contents.h: Region."""
POOL_BYTES = 16 << 20
"""Of rows in a pool, at most: a larger input goes through them again and again."""
WORD = (1 << 64) - 1


class Mode(IntEnum):
    """kernels.cu: what inspecting a buffer means."""

    VERIFY = 0
    SNAPSHOT = 1
    LIGHT = 2
    DIGEST = 3


@dataclass(frozen=True, slots=True)
class Source:
    """What one tensor input is made from."""

    kind: Kind | None
    """None for a file's bytes and for what the problem's own code makes."""
    dtype: DType
    count: int
    """Stored elements."""
    row: int
    pool_rows: int = 0
    """0 if there is no pool; a file is one row."""

    @property
    def pool_bytes(self) -> int:
        return self.pool_rows * self.row * elements.stored_dtype(self.dtype).itemsize


def sources(problem: Problem, workload: Workload) -> list[Source | None]:
    """Return what each input is made from; None for a scalar."""
    definition = problem.definition
    axes, hints = definition.resolve(workload), problem.distributions(workload)
    found: list[Source | None] = []
    for name, spec in definition.inputs.items():
        given, shape = workload.inputs[name], definition.shape(name, axes)
        if shape is None:
            found.append(None)
            continue
        stored = elements.stored_shape(shape, spec.dtype)
        count, row = math.prod(stored), max(1, stored[-1] if stored else 1)
        if isinstance(given, CustomInput):
            found.append(Source(None, spec.dtype, count, row))
        elif isinstance(given, SafetensorsInput):
            found.append(Source(None, spec.dtype, count, count, pool_rows=1))
        else:
            kind = kind_of(name, spec, shape, hints.get(name), definition.op_type)
            rows = 0
            if kind.is_by_row:
                most = POOL_BYTES // (row * elements.stored_dtype(spec.dtype).itemsize)
                rows = max(2, min(2 * math.ceil(count / row), most))
            found.append(Source(kind, spec.dtype, count, row, rows))
    return found


class Contents:
    """The draws of one workload under one secret seed, and the regions that say what each buffer holds."""

    def __init__(self, problem: Problem, workload: Workload, seed: str, keep: Callable[[bytes], int]) -> None:
        """`keep` stores a pool where no runner sees it and returns its address."""
        self._draws = Draws(problem.definition, workload, seed)
        self._sources = sources(problem, workload)
        self._pools = [0] * len(self._sources)
        self._seed = f"{seed}/{workload.uuid}"
        axes = problem.definition.resolve(workload)
        generator = torch.Generator().manual_seed(seed_number(seed, workload.uuid))
        for index, (name, source) in enumerate(zip(problem.definition.inputs, self._sources, strict=True)):
            if source is None or not source.pool_rows or not source.count:
                continue
            given, spec = workload.inputs[name], problem.definition.inputs[name]
            if isinstance(given, SafetensorsInput):
                shape = problem.definition.shape(name, axes) or ()
                data = file_bytes(given, spec, shape, problem.files)
            else:
                assert source.kind is not None, "only files have a pool and no kind"
                rows = draw_rows(source.kind, source.pool_rows, source.row, source.dtype, generator)
                data = _bytes_of(rows)
            self._pools[index] = keep(data)

    def draw(self) -> Draw:
        """Return the next call's contents; a generator is entered at a key."""
        return self._draws.draw(lambda rng: tuple(_start(source, rng) for source in self._sources))

    def region(self, draw: Draw, index: int, address: int, mode: Mode = Mode.VERIFY) -> bytes:
        """Describe input `index` of `draw` at an address."""
        source = self._sources[index]
        assert source is not None, "a scalar has no buffer"
        start = draw.starts[index]
        if source.pool_rows:
            return region(
                source.dtype,
                address,
                source.count,
                kind=POOL if source.kind is None else ROW_FORMS[source.kind.form],
                key=seed_number(self._seed, f"call {draw.number} input {index}"),
                source=self._pools[index],
                source_count=source.pool_rows * source.row,
                start=start,
                span=source.row,
                mode=mode,
            )
        kind = source.kind
        assert kind is not None, "the problem's own code makes its inputs"
        if kind.form is Form.CONSTANT:
            varied = kind.varied
            assert varied is not None, "a constant can be varied"
            kind = Kind(Form.UNIFORM, kind.a, kind.a) if draw.spread is Spread.PLAIN else varied
        low, span = 0, source.row
        if kind.form is Form.INTEGERS:
            low, span = int(kind.a), (int(kind.b) - int(kind.a)) & WORD
        is_structured = draw.spread is Spread.STRUCTURED and kind.is_scalable
        return region(
            source.dtype,
            address,
            source.count,
            kind=FORMS[kind.form],
            key=start,
            start=start % OUTLIER_STRIDE,
            zeros=draw.zero_run(source.count) if is_structured else (0, 0),
            low=low,
            span=span,
            a=kind.a,
            b=kind.b,
            factor=draw.factor,
            spread=SPREADS[draw.spread] if kind.is_scalable else AS_DRAWN,
            mode=mode,
        )


def region(
    dtype: DType,
    address: int,
    count: int,
    *,
    kind: int,
    key: int = 0,
    source: int = 0,
    source_count: int = 0,
    start: int = 0,
    zeros: tuple[int, int] = (0, 0),
    low: int = 0,
    span: int = 0,
    pattern: int = 0,
    a: float = 0.0,
    b: float = 0.0,
    factor: float = 1.0,
    spread: int = AS_DRAWN,
    mode: Mode = Mode.VERIFY,
) -> bytes:
    """Pack a Region of contents.h: a buffer of `count` stored elements and what it holds."""
    nbytes = count * elements.stored_dtype(dtype).itemsize
    return REGION.pack(
        *(address, nbytes, key, source, source_count, start, *zeros, low, span, pattern),
        *(a, b, factor, TYPES[dtype], kind, spread, mode, 0),
    )


def repeated(pattern: int, dtype: DType) -> int:
    """Return eight bytes of an element's bit pattern, as often as it fits."""
    size = elements.stored_dtype(dtype).itemsize
    bits = pattern & ((1 << (8 * size)) - 1)
    return int.from_bytes(bits.to_bytes(size, "little") * (8 // size), "little")


def pool_bytes(problem: Problem, workload: Workload) -> list[int]:
    """Return the sizes of the pools that a workload's contents need."""
    return [source.pool_bytes for source in sources(problem, workload) if source and source.pool_rows]


def _start(source: Source | None, rng: random.Random) -> int:
    if source is None:
        return 0
    if source.pool_rows:
        return source.row * rng.randrange(source.pool_rows)
    return rng.getrandbits(64)


def _bytes_of(values: torch.Tensor) -> bytes:
    return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())
