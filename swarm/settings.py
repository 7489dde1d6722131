"""problem.toml: what SOL-ExecBench's files do not say about a problem, and how its inputs are drawn.

The values of a distribution are drawn by the judge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import Field, field_validator

from swarm import expressions
from swarm.definition import Definition, DType
from swarm.errors import BadInput
from swarm.schema import Flag, Frozen, decode, parse, read_toml, suggest, toml_fields, wrong
from swarm.workload import Tolerance


class DistributionKind(StrEnum):
    """How the values of one input are drawn; the number of arguments follows each."""

    NORMAL = "normal"
    UNIFORM = "uniform"
    INT = "int"
    BERNOULLI = "bernoulli"
    ONES = "ones"
    ZEROS = "zeros"


WEAK_LINE = "weak = true  # a wrong answer passes (swarm problems lint)\n"
ARGUMENTS = {
    DistributionKind.NORMAL: ("mean", "deviation"),
    DistributionKind.UNIFORM: ("low", "high"),
    DistributionKind.INT: ("low", "high"),
    DistributionKind.BERNOULLI: ("probability",),
    DistributionKind.ONES: (),
    DistributionKind.ZEROS: (),
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """`int` draws from low to high - 1, `uniform` from low to high; a bare `normal` is normal(0, 1)."""

    kind: DistributionKind
    arguments: tuple[float, ...] = ()

    def fault(self, dtype: DType) -> str:
        """Say why no value of an input of `dtype` can be drawn from it; empty if values can."""
        match self.kind, self.arguments:
            case DistributionKind.NORMAL, (_, deviation) if deviation < 0:
                return "its deviation is negative"
            case DistributionKind.BERNOULLI, (probability,) if not 0 <= probability <= 1:
                return "its probability is not between 0 and 1"
            case DistributionKind.UNIFORM, (low, high) if low > high:
                return "its low end is above its high end"
            case DistributionKind.INT, (low, high):
                return _int_fault(low, high, dtype)
        return ""


def _int_fault(low: float, high: float, dtype: DType) -> str:
    if not (low.is_integer() and high.is_integer()):
        return "its ends are not integers"
    if low >= high:
        return "it is empty: the high end is not in it"
    least, most = (0, 1) if dtype is DType.BOOL else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    if not dtype.is_float and (low < least or high - 1 > most):
        return f"{dtype} holds {least} to {most} only"
    return ""


class SolSettings(Frozen):
    """[sol]: floors that the counter cannot find, as expressions over axes and scalar inputs."""

    flops: str | None = None
    bytes: str | None = None


class ProblemSettings(Frozen):
    """problem.toml: everything about a problem that SOL-ExecBench's files do not say."""

    family: str = Field(default="other", pattern=r"^[a-z][a-z0-9_-]*$")
    """What lessons are shared by: problems of one family learn from each other."""
    op_class: (
        Literal["matmul", "convolution", "attention", "normalisation", "elementwise", "reduction", "gather"]
        | None
    ) = None
    source: str | None = None
    """The model and layer, or the paper, that the shapes come from."""
    licence: str | None = None
    irregular: Flag = False
    """Masked, causal, routed, paged, gathered or recurrent: FLOPs cannot be counted, only given in [sol]."""
    weak: Flag = False
    """A wrong answer passes, as `swarm problems lint` found: no headline figure counts it."""
    reference_precision: Literal["same", "higher"] = "same"
    """higher: the reference runs in the next wider float type (bfloat16 -> float32 -> float64)."""
    tolerance: Tolerance = Tolerance()
    sol: SolSettings = SolSettings()
    inputs: dict[str, str] = Field(default_factory=dict)
    """Input -> how its values are drawn, e.g. "normal(0, 0.02)" or "int(0, vocabulary)"."""

    @field_validator("inputs")
    @classmethod
    def _are_distributions(cls, inputs: dict[str, str]) -> dict[str, str]:
        for name, text in inputs.items():
            try:
                split(text)
            except ValueError as error:
                raise wrong(name, str(error), f"write {_examples()}") from None
        return inputs


def parse_settings(data: bytes, where: str, definition: Definition) -> ProblemSettings:
    """Parse problem.toml of a problem with this definition; no text at all is all defaults."""
    text = decode(data, where)
    locate = toml_fields(text, where)
    settings = parse(ProblemSettings, read_toml(text, where), locate)
    for name in settings.inputs:
        if name not in definition.inputs:
            raise BadInput(
                f"{name!r} is not an input",
                where=locate(("inputs", name)),
                remedy=suggest(name, definition.inputs),
            )
        if definition.inputs[name].is_scalar:
            raise BadInput(
                f"{name!r} is a scalar",
                where=locate(("inputs", name)),
                remedy="give its value in the workloads",
            )
    return settings


def is_marked_weak(data: bytes, where: str) -> bool:
    """Say whether a problem.toml, which has been checked before, marks its problem as weak."""
    return bool(read_toml(decode(data, where), where).get("weak", False))


def marked(text: str, is_weak: bool) -> str:
    """Return the text of a problem.toml with the mark of a weak problem set or taken away; all else stays."""
    lines = text.splitlines(keepends=True)
    first_table = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[:first_table] if not re.match(r"\s*weak\s*=", line)]
    return "".join(([WEAK_LINE] if is_weak else []) + kept + lines[first_table:])


def labelled(name: str, is_weak: bool) -> str:
    """Return how a table names a problem."""
    return f"{name} (weak)" if is_weak else name


def split(text: str) -> tuple[DistributionKind, list[str]]:
    """Return the kind and the argument expressions of a distribution; ValueError says what is wrong."""
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[1] not in tuple(DistributionKind):
        raise ValueError(f"{text!r} is not a distribution")
    kind = DistributionKind(match[1])
    arguments = _arguments(match[2] or "")
    if len(arguments) != len(ARGUMENTS[kind]) and not (kind is DistributionKind.NORMAL and not arguments):
        raise ValueError(f"{text!r} has {len(arguments)} arguments, not {len(ARGUMENTS[kind])}")
    try:
        for argument in arguments:
            expressions.free_names(argument)
    except BadInput as error:
        raise ValueError(error.what) from None
    return kind, arguments


def _arguments(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts] if text.strip() else []


def _examples() -> str:
    return ", ".join(f"{k}({', '.join(a)})" if a else str(k) for k, a in ARGUMENTS.items())
