"""Secret contents for every call of one workload: what each input is drawn from, and how a draw is written.

A workload's pools are made once from the job's secret seed; a call takes slices of them at secret offsets,
scaled by a secret factor, and into each cache line of them goes an element that no call had before: else a
candidate could know a slice again by a few elements, and what it sums up to without reading it. That costs
three passes over memory instead of a random generator's ten, and a call's contents can be written again at
any time, so no pristine copies are kept. Where buffers lie is the business of `slots`.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch

from swarm.definition import Definition, DType, TensorSpec
from swarm.judge import elements
from swarm.judge.kinds import Form, Kind, draw_rows, int_range, kind_of, make
from swarm.settings import Distribution
from swarm.tensorfile import tensor_bytes
from swarm.workload import CustomInput, SafetensorsInput, ScalarInput, Workload

Scalar = int | float | bool


class Spread(StrEnum):
    """How a draw is distributed; every fourth or so call of a workload has each of them."""

    PLAIN = "plain"
    SCALED = "scaled"
    """Everything larger or smaller by one factor."""
    OUTLIERS = "outliers"
    """A few elements far from the rest."""
    STRUCTURED = "structured"
    """A run of zeros, so that rows, halves or everything but a part are constant."""


SCALED_RANGE = 4.0
OUTLIER_FACTOR, OUTLIER_STRIDE = 16.0, 509  # a prime: outliers fall on all columns
JITTER = 0.1
MIN_SLACK, SLACK_DIVISOR = 4096, 4
FRESH_STRIDE = {1: 61, 2: 31, 4: 13, 8: 7}
"""By an element's bytes, how far apart new ones lie: under a line; primes, so that all columns get some."""
ROUND = (Spread.PLAIN, Spread.PLAIN, Spread.SCALED, Spread.OUTLIERS, Spread.STRUCTURED)


@dataclass(frozen=True, slots=True)
class Draw:
    """What the inputs of one call hold; with the sources of the workload it says every element."""

    number: int
    spread: Spread
    factor: float
    starts: tuple[int, ...]
    """Per input, where its source is entered: the first element of a pool's slice, or a generator's key."""
    zeros: tuple[float, float]
    """Begin and length, as shares of an input, of the run of zeros of a STRUCTURED draw."""
    scalars: tuple[Scalar | None, ...]
    """Per input, its value if it is a Python scalar."""

    def zero_run(self, count: int) -> tuple[int, int]:
        """Return the first zero of `count` elements of a STRUCTURED draw, and the element after the last."""
        begin = int(self.zeros[0] * count)
        return begin, min(count, begin + int(self.zeros[1] * count))


class Draws:
    """The secret sequence of one workload's draws; which sources they enter is the device's business."""

    def __init__(self, definition: Definition, workload: Workload, seed: str) -> None:
        self._rng = random.Random(f"{seed}/{workload.uuid}/draws")
        self._specs = tuple(definition.inputs.items())
        self._workload = workload
        self._number = 0
        self._round: list[Spread] = []

    def draw(self, starts: Callable[[random.Random], tuple[int, ...]]) -> Draw:
        """Return the next call's contents; `starts` chooses where each source is entered."""
        if not self._round:
            self._round = list(ROUND)
            self._rng.shuffle(self._round)
        spread = self._round.pop()
        factor = self._rng.uniform(1 - JITTER, 1 + JITTER)
        if spread is Spread.SCALED:
            factor = math.exp(self._rng.uniform(-1, 1) * math.log(SCALED_RANGE))
        self._number += 1
        return Draw(
            number=self._number,
            spread=spread,
            factor=factor,
            starts=starts(self._rng),
            zeros=(self._rng.random(), self._rng.uniform(0.05, 0.6)),
            scalars=tuple(self._scalar(name, spec) for name, spec in self._specs),
        )

    def _scalar(self, name: str, spec: TensorSpec) -> Scalar | None:
        given = self._workload.inputs[name]
        if not spec.is_scalar or isinstance(given, CustomInput):
            return None
        if isinstance(given, ScalarInput):
            if spec.dtype is DType.BOOL:
                return bool(given.value)
            return given.value if spec.dtype.is_float else int(given.value)
        if spec.dtype is DType.BOOL:
            return self._rng.random() < 0.5
        if not spec.dtype.is_float:
            low, high = int_range(spec.dtype)
            return self._rng.randrange(low, high)
        return self._rng.gauss(0, 1)


@dataclass(frozen=True, slots=True)
class Pool:
    """Where one tensor input's values come from."""

    values: torch.Tensor
    """One-dimensional, in stored elements, longer than the input."""
    varied: torch.Tensor | None
    """Used instead in draws that are not plain, for inputs whose plain values are constant."""
    count: int
    step: int
    """Slices begin at a multiple of this, so that rows stay rows."""
    kind: Kind | None
    """What new elements are drawn from; None where the contents are what they are."""
    dtype: DType

    @property
    def is_scalable(self) -> bool:
        """May be scaled, zeroed and given outliers without leaving its kind."""
        return self.kind is not None and self.kind.is_scalable

    def part(self, draw: Draw, start: int) -> tuple[torch.Tensor, Kind | None]:
        """Return the slice that a draw takes, and the kind of its elements."""
        if self.varied is None or draw.spread is Spread.PLAIN:
            return self.values[start : start + self.count], self.kind
        assert self.kind is not None, "what is varied has a kind"
        return self.varied[start : start + self.count], self.kind.varied


class Inputs:
    """The draws of one workload under one secret seed."""

    def __init__(
        self,
        definition: Definition,
        workload: Workload,
        seed: str,
        hints: Mapping[str, Distribution] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """`files` are the problem's, for inputs that come from one of them."""
        self._draws = Draws(definition, workload, seed)
        self._seed = f"{seed}/{workload.uuid}"
        generator = torch.Generator().manual_seed(seed_number(seed, workload.uuid))
        axes = definition.resolve(workload)
        self.pools: list[Pool | None] = []
        for name, spec in definition.inputs.items():
            given, shape = workload.inputs[name], definition.shape(name, axes)
            if isinstance(given, SafetensorsInput):
                self.pools.append(_from_file(given, spec, shape or (), files or {}))
            elif isinstance(given, CustomInput) or shape is None:
                self.pools.append(None)
            else:
                hint = (hints or {}).get(name)
                self.pools.append(make_pool(name, spec, shape, generator, hint, definition.op_type))

    def draw(self) -> Draw:
        """Return the next call's contents."""
        return self._draws.draw(lambda rng: tuple(_start(pool, rng) for pool in self.pools))

    def write(self, draw: Draw, index: int, into: torch.Tensor) -> None:
        """Write input `index` of `draw` into a flat tensor of stored elements."""
        pool = self.pools[index]
        assert pool is not None, "a scalar has no buffer"
        start = draw.starts[index]
        part, kind = pool.part(draw, start)
        number = seed_number(self._seed, f"call {draw.number} input {index}")
        if kind is not None and kind.is_by_row:
            rows, row = pool.count // pool.step, pool.step
            into.copy_(draw_rows(kind, rows, row, pool.dtype, torch.Generator().manual_seed(number)))
            return
        if pool.is_scalable:
            torch.mul(part, draw.factor, out=into)
        else:
            into.copy_(part)
        if kind is not None and kind.form is not Form.CONSTANT:
            stride = FRESH_STRIDE[into.element_size()]
            new = into[number % stride :: stride]
            fresh = draw_rows(kind, 1, len(new), pool.dtype, torch.Generator().manual_seed(number))
            new.copy_(fresh.mul_(draw.factor) if pool.is_scalable else fresh)
        if pool.is_scalable and draw.spread is Spread.OUTLIERS:
            into[start % OUTLIER_STRIDE :: OUTLIER_STRIDE].mul_(OUTLIER_FACTOR)
        elif pool.is_scalable and draw.spread is Spread.STRUCTURED:
            begin, end = draw.zero_run(pool.count)
            into[begin:end].zero_()


def seed_number(seed: str, what: str) -> int:
    """Turn a secret and the name of its use into a generator's seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}".encode()).digest()[:7], "big")


def make_pool(
    name: str,
    spec: TensorSpec,
    shape: tuple[int, ...],
    generator: torch.Generator,
    hint: Distribution | None = None,
    op_type: str | None = None,
) -> Pool:
    """Return the pool of one input: by its hint, else by SOL-ExecBench's rules for its name and dtype."""
    stored = elements.stored_shape(shape, spec.dtype)
    count = math.prod(stored)
    row = max(1, stored[-1] if stored else 1)
    kind = kind_of(name, spec, shape, hint, op_type)
    if kind.form is Form.CAUSAL:
        values = make(kind, shape, generator).to(elements.torch_dtype(spec.dtype)).flatten()
        return Pool(values, None, count, 1, None, spec.dtype)
    slack = max(MIN_SLACK, count // SLACK_DIVISOR)
    rows = math.ceil((count + slack) / row)
    values = draw_rows(kind, rows, row, spec.dtype, generator)
    varied = None if kind.varied is None else draw_rows(kind.varied, rows, row, spec.dtype, generator)
    return Pool(values, varied, count, row if kind.is_by_row else 1, kind, spec.dtype)


def file_bytes(
    given: SafetensorsInput, spec: TensorSpec, shape: tuple[int, ...], files: Mapping[str, bytes]
) -> bytes:
    """Return the stored bytes of an input that comes from one of the problem's files."""
    return tensor_bytes(files, given.path, given.tensor_key, spec.dtype, shape)


def _from_file(
    given: SafetensorsInput, spec: TensorSpec, shape: tuple[int, ...], files: Mapping[str, bytes]
) -> Pool:
    data = bytearray(file_bytes(given, spec, shape, files))
    dtype = elements.stored_dtype(spec.dtype)
    values = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return Pool(values, None, values.numel(), 1, None, spec.dtype)


def _start(pool: Pool | None, rng: random.Random) -> int:
    if pool is None:
        return 0
    room = (pool.values.numel() - pool.count) // pool.step
    return pool.step * rng.randint(0, room)
