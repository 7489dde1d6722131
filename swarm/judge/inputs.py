"""Secret contents for every call of one workload: what each input is drawn from, and how a draw is written.

A workload's pools are made once from the job's secret seed; a call takes slices of them at secret offsets,
scaled by a secret factor. That costs one pass over memory instead of a random generator's ten, and a call's
contents can be written again at any time, so no pristine copies are kept. Where buffers lie is the business
of `slots`.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from swarm.definition import Definition, DType, TensorSpec
from swarm.judge import elements
from swarm.settings import Distribution, DistributionKind
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
ROUND = (Spread.PLAIN, Spread.PLAIN, Spread.SCALED, Spread.OUTLIERS, Spread.STRUCTURED)


@dataclass(frozen=True, slots=True)
class Draw:
    """What the inputs of one call hold; with the pools it says every element."""

    number: int
    spread: Spread
    factor: float
    starts: tuple[int, ...]
    """Per tensor input, the pool element its slice begins at."""
    zeros: tuple[float, float]
    """Begin and length, as shares of an input, of the run of zeros of a STRUCTURED draw."""
    scalars: tuple[Scalar | None, ...]
    """Per input, its value if it is a Python scalar."""


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
    is_scalable: bool
    """May be scaled, zeroed and given outliers without leaving its kind."""


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
        self._rng = random.Random(f"{seed}/{workload.uuid}/draws")
        self._specs = tuple(definition.inputs.items())
        self._workload = workload
        generator = torch.Generator().manual_seed(seed_number(seed, workload.uuid))
        axes = definition.resolve(workload)
        self.pools: list[Pool | None] = []
        for name, spec in self._specs:
            given, shape = workload.inputs[name], definition.shape(name, axes)
            if isinstance(given, SafetensorsInput):
                self.pools.append(_from_file(given, spec, shape or (), files or {}))
            elif isinstance(given, CustomInput) or shape is None:
                self.pools.append(None)
            else:
                hint = (hints or {}).get(name)
                self.pools.append(make_pool(name, spec, shape, generator, hint, definition.op_type))
        self._number = 0
        self._round: list[Spread] = []

    def draw(self) -> Draw:
        """Return the next call's contents."""
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
            starts=tuple(_start(pool, self._rng) for pool in self.pools),
            zeros=(self._rng.random(), self._rng.uniform(0.05, 0.6)),
            scalars=tuple(self._scalar(name, spec) for name, spec in self._specs),
        )

    def write(self, draw: Draw, index: int, into: torch.Tensor) -> None:
        """Write input `index` of `draw` into a flat tensor of stored elements."""
        pool = self.pools[index]
        assert pool is not None, "a scalar has no buffer"
        plain = pool.varied is None or draw.spread is Spread.PLAIN
        values = pool.values if plain or pool.varied is None else pool.varied
        start = draw.starts[index]
        part = values[start : start + pool.count]
        if not pool.is_scalable:
            into.copy_(part)
            return
        torch.mul(part, draw.factor, out=into)
        if draw.spread is Spread.OUTLIERS:
            into[start % OUTLIER_STRIDE :: OUTLIER_STRIDE].mul_(OUTLIER_FACTOR)
        elif draw.spread is Spread.STRUCTURED:
            begin = int(draw.zeros[0] * pool.count)
            into[begin : begin + int(draw.zeros[1] * pool.count)].zero_()

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
            low, high = _int_range(spec.dtype)
            return self._rng.randrange(low, high)
        return self._rng.gauss(0, 1)


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
    kind = _by_hint(hint) if hint else _by_name(name, spec, shape, op_type) or _by_dtype(spec.dtype)
    if kind.is_whole:
        values = kind.make(shape, generator).to(elements.torch_dtype(spec.dtype)).flatten()
        return Pool(values, None, count, 1, is_scalable=False)
    step = row if kind.by_row else 1
    slack = max(MIN_SLACK, count // SLACK_DIVISOR)
    rows = math.ceil((count + slack) / row)
    values = _store(kind.make((rows, row), generator), spec.dtype)
    varied = None if kind.varied is None else _store(kind.varied((rows, row), generator), spec.dtype)
    return Pool(values, varied, count, step, kind.is_scalable and spec.dtype.bits >= 16)


Make = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Make
    is_scalable: bool = False
    by_row: bool = False
    is_whole: bool = False
    varied: Make | None = None


def _randn(shape: Sequence[int], g: torch.Generator) -> torch.Tensor:
    return torch.empty(tuple(shape)).normal_(generator=g)


def _uniform(low: float, high: float) -> _Kind:
    return _Kind(lambda shape, g: torch.empty(shape).uniform_(low, high, generator=g))


def _integers(low: int, high: int) -> _Kind:
    return _Kind(lambda shape, g: torch.randint(low, high, shape, generator=g))


def _constant(value: float, spread: float) -> _Kind:
    return _Kind(
        lambda shape, g: torch.full(shape, value),
        varied=lambda shape, g: _randn(shape, g).mul_(spread).add_(value),
    )


def _causal(shape: tuple[int, ...], dtype: DType) -> Make:
    low = torch.finfo(elements.torch_dtype(dtype)).min
    return lambda _, g: torch.full(shape, low).triu(diagonal=1)


NORMAL = _Kind(_randn, is_scalable=True)
SOFTMAX = _Kind(lambda shape, g: torch.softmax(_randn(shape, g), -1), by_row=True)
BINARY = _Kind(lambda shape, g: torch.randint(0, 2, shape, generator=g))
POSITIVE = _Kind(lambda shape, g: _randn(shape, g).abs_().add_(0.1))
FAN_IN = _Kind(lambda shape, g: _randn(shape, g).div_(math.sqrt(shape[-1])), is_scalable=True)
ONES, ZEROS = _constant(1.0, 0.25), _constant(0.0, 0.25)

_SIN_COS = re.compile(r"(rope_)?(cos|sin)(_cached)?|rope_(cos|sin)")
_VARIANCE = re.compile(r"(rstd|std|variance|var)\w*|\w*_(rstd|std|variance|var)")
_BINARY_MASK = re.compile(r"(x|text|aspect_ratio|drop|attention)_mask")
_WEIGHT = re.compile(r"\w*(_weights?|_proj|_projs)\d*|weight\d*")


def _by_name(name: str, spec: TensorSpec, shape: tuple[int, ...], op_type: str | None) -> _Kind | None:
    """Apply the name rules in their order; they hold for float32, float16 and bfloat16 only."""
    if spec.dtype not in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16):
        return None
    text = (spec.description or "").lower()
    is_square = len(shape) >= 2 and shape[-1] == shape[-2]
    if op_type == "sampling" and name == "probs":
        return SOFTMAX
    if re.search(r"norm\w*_weight|norm_weight", name):
        return ONES
    if re.search(r"norm\w*_bias|norm_bias", name):
        return ZEROS
    if is_square and (name in ("attention_mask", "causal_mask") or "causal attention mask" in text):
        return _Kind(_causal(shape, spec.dtype), is_whole=True)
    if _BINARY_MASK.fullmatch(name) or (name.endswith("_mask") and "binary" in text):
        return BINARY
    if _SIN_COS.fullmatch(name):
        function = torch.cos if "cos" in name else torch.sin
        return _Kind(lambda s, g: function(_randn(s, g).clamp_(-3, 3)))
    if _VARIANCE.fullmatch(name):
        return POSITIVE
    decays = {"A": (-1.0, -0.001), "A_log": (-5.0, -1.0), "g": (-5.0, 0.0)}
    if name in decays:
        return _uniform(*decays[name])
    if name == "A_cumsum":
        return _Kind(lambda s, g: torch.empty(s).uniform_(-0.1, 0, generator=g).cumsum(-1), by_row=True)
    if name in ("attn_weights", "attention_weights", "routing_weights") or "softmax output" in text:
        return SOFTMAX
    if len(shape) >= 2 and _WEIGHT.fullmatch(name):
        return FAN_IN
    return None


def _by_dtype(dtype: DType) -> _Kind:
    if dtype is DType.BOOL:
        return BINARY
    if not dtype.is_float:
        return _integers(*_int_range(dtype))
    if dtype.bits == 8:
        return _Kind(lambda shape, g: _randn(shape, g).clamp_(-2, 2))
    if dtype.is_packed:
        return _integers(0, 256)  # every byte is a pair of E2M1 values
    return NORMAL


def _int_range(dtype: DType) -> tuple[int, int]:
    return (-128, 128) if dtype is DType.INT8 else (-1024, 1024)


def _by_hint(hint: Distribution) -> _Kind:
    match hint.kind:
        case DistributionKind.NORMAL:
            mean, deviation = hint.arguments or (0.0, 1.0)
            return _Kind(lambda shape, g: _randn(shape, g).mul_(deviation).add_(mean), is_scalable=mean == 0)
        case DistributionKind.UNIFORM:
            return _uniform(*hint.arguments)
        case DistributionKind.INT:
            low, high = hint.arguments
            return _integers(int(low), int(high))
        case DistributionKind.BERNOULLI:
            (probability,) = hint.arguments
            return _Kind(lambda shape, g: torch.empty(shape).bernoulli_(probability, generator=g))
        case DistributionKind.ONES:
            return ONES
        case DistributionKind.ZEROS:
            return ZEROS


def _from_file(
    given: SafetensorsInput, spec: TensorSpec, shape: tuple[int, ...], files: Mapping[str, bytes]
) -> Pool:
    data = bytearray(tensor_bytes(files, given.path, given.tensor_key, spec.dtype, shape))
    dtype = elements.stored_dtype(spec.dtype)
    values = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return Pool(values, None, values.numel(), 1, is_scalable=False)


def _start(pool: Pool | None, rng: random.Random) -> int:
    if pool is None:
        return 0
    room = (pool.values.numel() - pool.count) // pool.step
    return pool.step * rng.randint(0, room)


def _store(values: torch.Tensor, dtype: DType) -> torch.Tensor:
    if dtype.is_packed:
        return values.to(torch.uint8).flatten()
    stored = values.to(elements.torch_dtype(dtype)).flatten()
    return stored.view(torch.uint8) if dtype is DType.BOOL else stored
