"""How a problem's inputs are drawn and its outputs compared, found by trying its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from swarm.extract.child.graph import one_line

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""Share of a result's spread that an answer may be off by; with inputs of half the bits it is off by more."""
COARSE = 6e-2
"""The same for 8 bits."""
MOST_OF_IT = 0.5
"""Of a tolerance, that an honest answer needs; a tolerance is widened until that holds."""
WIDEST = 2.0
"""By so much at most, or rough guesses pass: then the reference defines what is right as it is, not wider."""
ALL_MATCH, ROUNDED_MATCH = 1.0, 0.99
"""Where results are rounded to 16 bits more than once, some elements near zero are far off, in proportion."""
FEWER_MATCH = 0.95
"""Where an order decides, and close values may honestly change places."""

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What problem.toml says."""

    hints: list[str]
    atol: float
    rtol: float
    ratio: float
    is_wider: bool


class Unfit(Exception):
    """No problem can be made of it; the text says why."""


def rules(run: Run, seen: Sequence[torch.Tensor], has_order: bool, came: int) -> Rules:
    """Find rules for a function of which `seen` are the inputs in the model; Unfit if there are none.

    The first `came` of them are gradients, which are ours.
    """

    def like(may_scale: bool) -> list[Drawn]:
        ours = [Drawn("normal", 0, 1) if may_scale else Drawn("uniform", -1, 1)] * came
        return ours + [Drawn.like(x, may_scale=may_scale) for x in seen[came:]]

    kinds = like(not has_order)
    narrow = _call(run, _drawn(kinds, seen))
    halves = [_half_zero(x, kind) for kind, x in zip(kinds, _drawn(kinds, seen), strict=True)]
    if not _is_finite(_call(run, halves)):
        kinds = like(False)
        narrow = _call(run, _drawn(kinds, seen))
    if not _is_finite(narrow):
        raise Unfit("with random inputs its result is not finite")
    spreads = [float(x.double().std(correction=0)) for x in narrow if x.is_floating_point()]
    if any(not spread > 0 for spread in spreads):
        raise Unfit("its result is one number everywhere")
    floats = [x.dtype for x in (*seen, *narrow) if x.is_floating_point()]
    rtol = max((ROUNDING.get(dtype, COARSE) for dtype in floats), default=0.0)
    atol = rtol * min(spreads, default=0.0)
    ratio = FEWER_MATCH if has_order else ALL_MATCH if rtol < ROUNDING[torch.bfloat16] else ROUNDED_MATCH
    wide = None if has_order else _wide(run, kinds, seen, narrow)
    if wide is not None:
        pairs = [(a, b) for a, b in zip(narrow, wide, strict=True) if a.is_floating_point()]
        factor = max((_need(a, b, atol, rtol, ratio) for a, b in pairs), default=0.0) / MOST_OF_IT
        if factor > WIDEST:
            wide = None
        elif factor > 1:
            atol, rtol = atol * factor, rtol * factor
    return Rules([kind.text for kind in kinds], _round(atol), _round(rtol), ratio, wide is not None)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A distribution like that of a tensor in the model."""

    kind: str
    a: float
    b: float

    @classmethod
    def like(cls, seen: torch.Tensor, *, may_scale: bool) -> Drawn:
        if seen.dtype == torch.bool:
            return cls("bernoulli", min(0.9, max(0.1, _round(float(seen.double().mean())))), 0)
        if not seen.is_floating_point():
            return cls("int", int(seen.min()), int(seen.max()) + 1)
        values = seen.double()
        if not bool(values.isfinite().all()):
            raise Unfit("an input holds infinities, as a mask that is made elsewhere does")
        low, high = float(values.min()), float(values.max())
        mean, deviation = float(values.mean()), float(values.std(correction=0))
        if deviation < 1e-6 * max(abs(mean), 1e-6):  # as it was initialised: ones, zeros
            low, high, deviation = 0.5 * mean, 1.5 * mean, 0.5
            if mean <= 0:
                return cls("normal", _round(mean), deviation)
        if low >= 0:  # probabilities, variances, what a rectifier left
            return cls("uniform", _round(low), _round(high))
        if abs(mean) < 0.1 * deviation:
            if may_scale:
                return cls("normal", 0, _round(deviation))
            return cls("uniform", -_round(1.7 * deviation), _round(1.7 * deviation))
        return cls("normal", _round(mean), _round(deviation))

    @property
    def text(self) -> str:
        return (
            f"bernoulli({self.a:g})" if self.kind == "bernoulli" else f"{self.kind}({self.a:g}, {self.b:g})"
        )

    @property
    def is_scalable(self) -> bool:
        """Whether a judge draws zeros and outliers of it as well."""
        return self.kind == "normal" and self.a == 0

    def draw(self, like: torch.Tensor, seed: int) -> torch.Tensor:
        g = torch.Generator().manual_seed(seed)
        shape = tuple(like.shape)
        match self.kind:
            case "normal":
                made = torch.empty(shape).normal_(self.a, self.b, generator=g)
            case "uniform":
                made = torch.empty(shape).uniform_(self.a, self.b, generator=g)
            case "bernoulli":
                made = torch.empty(shape).bernoulli_(self.a, generator=g)
            case _:
                made = torch.randint(int(self.a), int(self.b), shape, generator=g)
        return made.to(like.device, like.dtype)


def _drawn(kinds: Sequence[Drawn], seen: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the same random inputs whenever it is asked for them."""
    return [kind.draw(x, seed) for seed, (kind, x) in enumerate(zip(kinds, seen, strict=True))]


def _call(run: Run, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    try:
        with torch.no_grad():
            return as_list(run(*inputs))
    except Exception as error:  # indices that do not fit, for example
        raise Unfit(f"with random inputs it fails: {one_line(error)}") from None


def as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _half_zero(x: torch.Tensor, kind: Drawn) -> torch.Tensor:
    if kind.is_scalable:
        x.view(-1)[: x.numel() // 2] = 0
    return x


def _is_finite(results: list[torch.Tensor]) -> bool:
    return all(bool(x.isfinite().all()) for x in results)


def _wide(
    run: Run, kinds: list[Drawn], seen: Sequence[torch.Tensor], narrow: list[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Return what the function makes of wider floats; None if it does not take them."""
    try:
        wide = _call(run, [x.to(WIDER.get(x.dtype, x.dtype)) for x in _drawn(kinds, seen)])
    except Unfit:
        return None
    is_alike = [x.shape for x in wide] == [x.shape for x in narrow] and _is_finite(wide)
    is_float = [x.is_floating_point() for x in wide] == [x.is_floating_point() for x in narrow]
    return wide if is_alike and is_float else None


def _need(got: torch.Tensor, right: torch.Tensor, atol: float, rtol: float, ratio: float) -> float:
    """Return the share of a tolerance that so many of an answer's elements need."""
    errors = (got.double() - right.double()).abs() / (atol + rtol * right.double().abs())
    return float(errors.flatten().kthvalue(max(1, math.ceil(ratio * errors.numel()))).values)


def _round(number: float) -> float:
    """Return two digits of a number; a person would not write more."""
    return float(f"{number:.2g}") if math.isfinite(number) else number
