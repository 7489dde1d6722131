"""What each input is drawn from, as data: by problem.toml's hint, SOL-ExecBench's rules for names, or dtype.

A CPU draws with torch, here; a GPU with its own generators (`cuda.contents`), by the same table.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from swarm.definition import DType, TensorSpec
from swarm.judge import elements
from swarm.settings import Distribution, DistributionKind


class Form(StrEnum):
    """How a number is drawn; what a Kind's `a` and `b` say follows each."""

    NORMAL = "normal"
    """Mean, deviation."""
    UNIFORM = "uniform"
    """Low, high."""
    INTEGERS = "integers"
    """The lowest, one more than the highest."""
    BERNOULLI = "bernoulli"
    """Probability of 1."""
    CONSTANT = "constant"
    """The value, and how far a call's may be from it where draws are not plain."""
    CLAMPED = "clamped"
    """Bound of a normal number."""
    POSITIVE = "positive"
    SINE = "sine"
    COSINE = "cosine"
    SOFTMAX = "softmax"
    CUMSUM = "cumsum"
    CAUSAL = "causal"
    """The value above the diagonal; it is 0 elsewhere."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one input is drawn from."""

    form: Form
    a: float = 0.0
    b: float = 1.0
    is_scalable: bool = False
    """May be scaled, zeroed and given outliers without leaving its kind."""

    @property
    def is_by_row(self) -> bool:
        """Whether a value depends on the others of its row."""
        return self.form in (Form.SOFTMAX, Form.CUMSUM)

    @property
    def varied(self) -> Kind | None:
        """What is drawn instead where draws are not plain."""
        return Kind(Form.NORMAL, self.a, self.b) if self.form is Form.CONSTANT else None


def kind_of(
    name: str,
    spec: TensorSpec,
    shape: tuple[int, ...],
    hint: Distribution | None = None,
    op_type: str | None = None,
) -> Kind:
    """Say what one input is drawn from: its hint, else SOL-ExecBench's rules for its name, then its dtype."""
    found = _by_hint(hint) if hint else _by_name(name, spec, shape, op_type) or _by_dtype(spec.dtype)
    can_be_scaled = spec.dtype.is_float and spec.dtype.bits >= 16
    return found if can_be_scaled else replace(found, is_scalable=False)


def draw_rows(kind: Kind, rows: int, row: int, dtype: DType, generator: torch.Generator) -> torch.Tensor:
    """Return rows of values of a kind, flat and in stored elements."""
    values = make(kind, (rows, row), generator)
    if dtype.is_packed:
        return values.to(torch.uint8).flatten()
    stored = values.to(elements.torch_dtype(dtype)).flatten()
    return stored.view(torch.uint8) if dtype is DType.BOOL else stored


def make(kind: Kind, shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    """Return values of a kind; rows are along the last dimension."""
    a, b = kind.a, kind.b
    match kind.form:
        case Form.NORMAL:
            values = _randn(shape, g)
            return values if (a, b) == (0, 1) else values.mul_(b).add_(a)
        case Form.UNIFORM:
            return torch.empty(shape).uniform_(a, b, generator=g)
        case Form.INTEGERS:
            return torch.randint(int(a), int(b), shape, generator=g)
        case Form.BERNOULLI:
            return torch.empty(shape).bernoulli_(a, generator=g)
        case Form.CONSTANT:
            return torch.full(shape, a)
        case Form.CLAMPED:
            return _randn(shape, g).clamp_(-a, a)
        case Form.POSITIVE:
            return _randn(shape, g).abs_().add_(0.1)
        case Form.SINE:
            return torch.sin(_randn(shape, g).clamp_(-3, 3))
        case Form.COSINE:
            return torch.cos(_randn(shape, g).clamp_(-3, 3))
        case Form.SOFTMAX:
            return torch.softmax(_randn(shape, g), -1)
        case Form.CUMSUM:
            return torch.empty(shape).uniform_(-0.1, 0, generator=g).cumsum(-1)
        case Form.CAUSAL:
            return torch.full(shape, a).triu(diagonal=1)


def _randn(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return torch.empty(shape).normal_(generator=g)


NORMAL = Kind(Form.NORMAL, is_scalable=True)
SOFTMAX = Kind(Form.SOFTMAX)
BINARY = Kind(Form.INTEGERS, 0, 2)
ONES, ZEROS = Kind(Form.CONSTANT, 1.0, 0.25), Kind(Form.CONSTANT, 0.0, 0.25)

_SIN_COS = re.compile(r"(rope_)?(cos|sin)(_cached)?|rope_(cos|sin)")
_VARIANCE = re.compile(r"(rstd|std|variance|var)\w*|\w*_(rstd|std|variance|var)")
_BINARY_MASK = re.compile(r"(x|text|aspect_ratio|drop|attention)_mask")
_WEIGHT = re.compile(r"\w*(_weights?|_proj|_projs)\d*|weight\d*")


def _by_name(name: str, spec: TensorSpec, shape: tuple[int, ...], op_type: str | None) -> Kind | None:
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
        return Kind(Form.CAUSAL, torch.finfo(elements.torch_dtype(spec.dtype)).min)
    if _BINARY_MASK.fullmatch(name) or (name.endswith("_mask") and "binary" in text):
        return BINARY
    if _SIN_COS.fullmatch(name):
        return Kind(Form.COSINE if "cos" in name else Form.SINE)
    if _VARIANCE.fullmatch(name):
        return Kind(Form.POSITIVE)
    decays = {"A": (-1.0, -0.001), "A_log": (-5.0, -1.0), "g": (-5.0, 0.0)}
    if name in decays:
        return Kind(Form.UNIFORM, *decays[name])
    if name == "A_cumsum":
        return Kind(Form.CUMSUM)
    if name in ("attn_weights", "attention_weights", "routing_weights") or "softmax output" in text:
        return SOFTMAX
    if len(shape) >= 2 and _WEIGHT.fullmatch(name):
        return Kind(Form.NORMAL, 0.0, 1 / math.sqrt(shape[-1]), is_scalable=True)
    return None


def _by_dtype(dtype: DType) -> Kind:
    if dtype is DType.BOOL:
        return BINARY
    if not dtype.is_float:
        return Kind(Form.INTEGERS, *int_range(dtype))
    if dtype.bits == 8:
        return Kind(Form.CLAMPED, 2.0)
    if dtype.is_packed:
        return Kind(Form.INTEGERS, 0, 256)  # every byte is a pair of E2M1 values
    return NORMAL


def int_range(dtype: DType) -> tuple[int, int]:
    """Return the lowest integer that is drawn by default, and one more than the highest."""
    return (-128, 128) if dtype is DType.INT8 else (-1024, 1024)


def _by_hint(hint: Distribution) -> Kind:
    match hint.kind:
        case DistributionKind.NORMAL:
            mean, deviation = hint.arguments or (0.0, 1.0)
            return Kind(Form.NORMAL, mean, deviation, is_scalable=mean == 0)
        case DistributionKind.UNIFORM:
            return Kind(Form.UNIFORM, hint.arguments[0], hint.arguments[1])
        case DistributionKind.INT:
            return Kind(Form.INTEGERS, hint.arguments[0], hint.arguments[1])
        case DistributionKind.BERNOULLI:
            return Kind(Form.BERNOULLI, hint.arguments[0])
        case DistributionKind.ONES:
            return ONES
        case DistributionKind.ZEROS:
            return ZEROS
