"""A Definition: what a problem computes, in SOL-ExecBench's schema, with everything that follows from shapes.

Values (workloads), tolerances and files are elsewhere; nothing here runs the reference, it is only parsed.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal, Protocol

from pydantic import Field, Tag, field_validator, model_validator

from swarm import expressions
from swarm.errors import BadInput
from swarm.expressions import Grammar
from swarm.schema import (
    Frozen,
    Int,
    Loc,
    decode,
    dotted,
    parse,
    read_json,
    read_python,
    shown,
    suggest,
    tag_of,
    wrong,
)

REFERENCE_FILE = "reference.py"
DEFINITION_FILE = "definition.json"
MAX_SIZE_DIGITS = 18


class DType(StrEnum):
    """An element type; the names are torch's."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT4_E2M1 = "float4_e2m1"
    FLOAT4_E2M1FN_X2 = "float4_e2m1fn_x2"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits of one logical element; both float4 types are packed two to a byte."""
        if self is DType.BOOL:
            return 8
        digits = re.match(r"b?[a-z]+(\d+)", self.value)
        assert digits is not None
        return int(digits[1])

    @property
    def is_float(self) -> bool:
        return "float" in self.value

    @property
    def is_packed(self) -> bool:
        return self.bits == 4


Size = Annotated[Int, Field(ge=0, lt=1 << 63)]
"""Of an axis; a kernel is told it as an int64_t."""


class ConstAxis(Frozen):
    """An axis with one size in all workloads."""

    type: Literal["const"]
    value: Size
    description: str | None = None


class VarAxis(Frozen):
    """An axis that each workload sizes."""

    type: Literal["var"]
    description: str | None = None


class ExprAxis(Frozen):
    """An axis computed from the others; it may use an earlier expression."""

    type: Literal["expr"]
    expression: str
    description: str | None = None


AXIS_TYPES = ("const", "var", "expr")

Axis = Annotated[
    Annotated[ConstAxis, Tag("<const>")]
    | Annotated[VarAxis, Tag("<var>")]
    | Annotated[ExprAxis, Tag("<expr>")],
    *tag_of(AXIS_TYPES, "axis"),
]


class TensorSpec(Frozen):
    """One input or output; a null shape is a Python scalar, an empty one a 0-d tensor."""

    shape: tuple[str, ...] | None
    dtype: DType
    description: str | None = None

    @property
    def is_scalar(self) -> bool:
        return self.shape is None

    @field_validator("dtype", mode="before")
    @classmethod
    def _known_dtype(cls, raw: object) -> object:
        if raw not in tuple(DType):
            raise wrong("", f"dtype {shown(raw)} is unknown", suggest(str(raw), DType))
        return raw


class HasAxes(Protocol):
    """What resolve needs of a workload."""

    @property
    def axes(self) -> Mapping[str, int]: ...


class Definition(Frozen):
    """What to compute: axes, inputs, outputs and a PyTorch reference."""

    name: str = Field(min_length=1)
    op_type: str | None = None
    description: str | None = None
    hf_id: str | None = None
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec] = Field(min_length=1)
    reference: str
    custom_inputs_entrypoint: str | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> Definition:
        _check_names(self)
        _check_shapes(self)
        _check_expressions(self)
        _check_reference(self)
        return self

    @property
    def var_axes(self) -> tuple[str, ...]:
        return tuple(name for name, axis in self.axes.items() if isinstance(axis, VarAxis))

    @property
    def runtime_axes(self) -> tuple[str, ...]:
        """The axes a kernel learns at run time: var axes and what depends on one, in declaration order."""
        varying = set(self.var_axes)
        for name, axis in self.axes.items():
            if isinstance(axis, ExprAxis) and expressions.free_names(axis.expression) & varying:
                varying.add(name)
        return tuple(name for name in self.axes if name in varying)

    @property
    def constants(self) -> dict[str, int]:
        """The axes that have one size in all workloads: const axes and expressions of them alone."""
        runtime = self.runtime_axes
        return {n: v for n, v in self._resolved({}, skip=runtime).items() if n not in runtime}

    def resolve(self, workload: HasAxes) -> dict[str, int]:
        """Return the size of every axis, in declaration order."""
        return self._resolved(workload.axes, skip=())

    def shape(self, name: str, axes: Mapping[str, int]) -> tuple[int, ...] | None:
        """Return the shape of an input or output in logical elements; None for a Python scalar."""
        spec = self.spec(name)
        if spec.shape is None:
            return None
        return tuple(int(dim) if dim.isdecimal() else axes[dim] for dim in spec.shape)

    def nbytes(self, name: str, axes: Mapping[str, int]) -> int:
        """Return the bytes one input or output takes in memory; 0 for a Python scalar."""
        shape = self.shape(name, axes)
        return 0 if shape is None else math.ceil(math.prod(shape) * self.spec(name).dtype.bits / 8)

    def spec(self, name: str) -> TensorSpec:
        return self.inputs[name] if name in self.inputs else self.outputs[name]

    def _resolved(self, sizes: Mapping[str, int], skip: Iterable[str]) -> dict[str, int]:
        known = dict(sizes)
        known |= {name: axis.value for name, axis in self.axes.items() if isinstance(axis, ConstAxis)}
        for name, axis in self.axes.items():
            if isinstance(axis, ExprAxis) and name not in skip:
                where = f"axis {name}"
                known[name] = expressions.evaluate_int(
                    axis.expression, known, grammar=Grammar.AXIS, where=where
                )
                if known[name] < 0:
                    raise BadInput(
                        f"expression {axis.expression!r} is {known[name]}",
                        where=where,
                        remedy="an axis must be 0 or more",
                    )
        return {name: known[name] for name in self.axes if name in known}


def parse_definition(
    data: bytes, where: str, *, reference: bytes | None = None, warnings: list[str] | None = None
) -> Definition:
    """Parse definition.json; `reference` is reference.py, which may hold the text instead.

    `warnings` is for third-party files: unknown fields are noted there instead of refused.
    """
    raw = read_json(data, where)
    from_file = False
    if reference is not None and isinstance(raw, dict):
        text = decode(reference, where.removesuffix(DEFINITION_FILE) + REFERENCE_FILE)
        from_file = not raw.get("reference")
        if from_file:
            raw = {**raw, "reference": text}
        elif raw["reference"] != text:
            raise BadInput(
                f"reference differs from the text of {REFERENCE_FILE}",
                where=f"{where}: reference",
                remedy="keep only one of them, or make them equal",
            )

    def locate(loc: Loc) -> str:
        if loc[:1] == ("reference",) and from_file:
            return where.removesuffix(DEFINITION_FILE) + REFERENCE_FILE
        return f"{where}: {dotted(loc)}" if loc else where

    return parse(Definition, raw, locate, notes=warnings)


def _check_names(d: Definition) -> None:
    for group, names in (("axes", d.axes), ("inputs", d.inputs), ("outputs", d.outputs)):
        for name in names:
            if not name.isidentifier():
                raise wrong(
                    (group, name), f"name {name!r} is not an identifier", "use letters, digits and '_'"
                )
            if group == "inputs" and name in d.axes:
                raise wrong(f"{group}.{name}", f"{name!r} is an axis too", "rename one of them")
            if group == "outputs" and name in d.inputs:
                raise wrong(f"{group}.{name}", f"{name!r} is an input too", "rename one of them")


def _check_shapes(d: Definition) -> None:
    for group, specs in (("inputs", d.inputs), ("outputs", d.outputs)):
        for name, spec in specs.items():
            for dim in spec.shape or ():
                if not (dim.isdecimal() and dim.isascii()) and dim not in d.axes:
                    raise wrong(
                        f"{group}.{name}.shape",
                        f"{dim!r} is neither a number nor an axis",
                        suggest(dim, d.axes),
                    )
                if len(dim) > MAX_SIZE_DIGITS and dim not in d.axes:
                    raise wrong(
                        f"{group}.{name}.shape",
                        f"{shown(dim)} is too large",
                        f"use at most {MAX_SIZE_DIGITS} digits",
                    )


def _check_expressions(d: Definition) -> None:
    known = {name for name, axis in d.axes.items() if not isinstance(axis, ExprAxis)}
    for name, axis in d.axes.items():
        if isinstance(axis, ExprAxis):
            field = f"axes.{name}.expression"
            try:
                needed = expressions.free_names(axis.expression, grammar=Grammar.AXIS)
            except BadInput as error:
                raise wrong(field, error.what, error.remedy or "") from None
            for missing in sorted(needed - known):
                is_later = missing in d.axes
                what = f"{missing!r} is declared later" if is_later else f"{missing!r} is not an axis"
                raise wrong(field, what, f"move it before {name!r}" if is_later else suggest(missing, d.axes))
            known.add(name)


def check_run(source: str, inputs: Iterable[str], where: str) -> None:
    """Raise BadInput unless Python text has a function `run` that takes the inputs in their order."""
    _functions(source, inputs, lambda what, remedy: BadInput(what, where=where, remedy=remedy))


def _functions(source: str, inputs: Iterable[str], fault: Callable[[str, str], Exception]) -> Collection[str]:
    """Return the names of the top-level functions, of which one is a fitting `run`; else raise a fault."""
    try:
        tree = read_python(source)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        raise fault(f"{place}{error.msg}", "it must be valid Python") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names = list(inputs)
    if "run" not in functions:
        raise fault("no top-level function 'run'", f"define run({', '.join(names)})")
    arguments = functions["run"].args
    found = [item.arg for item in arguments.posonlyargs + arguments.args]
    required_keywords = any(default is None for default in arguments.kw_defaults)
    if found != names or arguments.vararg or required_keywords:
        raise fault(
            f"line {functions['run'].lineno}: run takes ({ast.unparse(arguments)})",
            f"it must take the inputs in order: ({', '.join(names)})",
        )
    return functions


def _check_reference(d: Definition) -> None:
    functions = _functions(d.reference, d.inputs, partial(wrong, "reference"))
    entry = d.custom_inputs_entrypoint
    if entry is not None and entry not in functions:
        raise wrong(
            "custom_inputs_entrypoint",
            f"the reference has no top-level function {entry!r}",
            suggest(entry, functions),
        )
