"""A Workload: sizes and input sources in SOL-ExecBench's schema, checked against its Definition."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, Tag, model_validator

from swarm.definition import Definition, DType, Size, TensorSpec
from swarm.errors import BadInput
from swarm.schema import (
    Flag,
    Float,
    Frozen,
    json_fields,
    parse,
    read_json,
    shown,
    suggest,
    tag_of,
    wrong,
)


def _scalar(raw: object) -> bool | int | float:
    if not isinstance(raw, bool | int | float):
        raise wrong("", f"{shown(raw)} is not a scalar", "write a number, true or false")
    return raw


class RandomInput(Frozen):
    """Values from the distribution that follows from name, dtype and problem.toml."""

    type: Literal["random"]


class ScalarInput(Frozen):
    """A Python scalar, the same in every call."""

    type: Literal["scalar"]
    value: Annotated[int | float | bool, PlainValidator(_scalar)]


class SafetensorsInput(Frozen):
    """A tensor from a file beside the problem or in the trace folder."""

    type: Literal["safetensors"]
    path: str = Field(min_length=1)
    tensor_key: str = Field(min_length=1)


class CustomInput(Frozen):
    """Made, with all other inputs, by the definition's custom_inputs_entrypoint."""

    type: Literal["custom"]


INPUT_TYPES = ("random", "scalar", "safetensors", "custom")

InputDescriptor = Annotated[
    Annotated[RandomInput, Tag("<random>")]
    | Annotated[ScalarInput, Tag("<scalar>")]
    | Annotated[SafetensorsInput, Tag("<safetensors>")]
    | Annotated[CustomInput, Tag("<custom>")],
    *tag_of(INPUT_TYPES, "input"),
]


class Tolerance(Frozen):
    """How closely outputs must match; what is not given here comes from the next level."""

    max_atol: Float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_rtol: Float | None = Field(default=None, ge=0, allow_inf_nan=False)
    required_matched_ratio: Float | None = Field(default=None, gt=0, le=1)
    max_error_cap: Float | None = Field(default=None, gt=0, allow_inf_nan=False)
    allow_negative_inf: Flag | None = None


class Workload(Frozen):
    """One line of workload.jsonl."""

    uuid: str = Field(min_length=1, max_length=200)
    axes: dict[str, Size]
    inputs: dict[str, InputDescriptor]
    tolerance: Tolerance | None = None

    @property
    def is_custom(self) -> bool:
        """Whether all inputs come from the custom entrypoint; else none does."""
        return any(isinstance(item, CustomInput) for item in self.inputs.values())

    @property
    def scalars(self) -> dict[str, int | float | bool]:
        return {name: item.value for name, item in self.inputs.items() if isinstance(item, ScalarInput)}

    @model_validator(mode="after")
    def _custom_is_all_or_nothing(self) -> Workload:
        other = [name for name, item in self.inputs.items() if not isinstance(item, CustomInput)]
        if self.is_custom and other:
            raise wrong(
                f"inputs.{other[0]}", "some inputs are custom, this one is not", "make all custom, or none"
            )
        return self


def parse_workloads(
    data: bytes, where: str, definition: Definition, *, warnings: list[str] | None = None
) -> tuple[Workload, ...]:
    """Parse a JSON-lines file of workloads of `definition`; errors name the line.

    `warnings` is for third-party files: unknown fields are noted there instead of refused.
    """
    workloads: dict[str, Workload] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        workload = parse(Workload, _one_line(line, place), json_fields(place), notes=warnings)
        check(workload, definition, place)
        if workload.uuid in workloads:
            raise BadInput(
                f"uuid {workload.uuid!r} appears twice", where=place, remedy="give each workload its own"
            )
        workloads[workload.uuid] = workload
    if not workloads:
        raise BadInput("no workload", where=where, remedy="write one JSON object per line")
    return tuple(workloads.values())


def check(workload: Workload, definition: Definition, where: str) -> None:
    """Raise BadInput unless `workload` sizes exactly the axes and feeds exactly the inputs."""
    _same_names(workload.axes, definition.var_axes, f"{where}: axes", "var axis")
    _same_names(workload.inputs, definition.inputs, f"{where}: inputs", "input")
    for name, item in workload.inputs.items():
        for what, remedy in _mismatches(item, definition.inputs[name], definition):
            raise BadInput(what, where=f"{where}: inputs.{name}", remedy=remedy)
    try:
        definition.resolve(workload)
    except BadInput as error:
        raise BadInput(error.what, where=f"{where}: {error.where}", remedy=error.remedy) from None


def _one_line(line: bytes, place: str) -> object:
    try:
        return read_json(line, place)
    except BadInput as error:
        raise BadInput(error.what, where=place, remedy="write one JSON object per line") from None


def _same_names(given: Collection[str], wanted: Collection[str], where: str, noun: str) -> None:
    for name in given:
        if name not in wanted:
            raise BadInput(
                f"the definition has no {noun} {name!r}", where=where, remedy=suggest(name, wanted)
            )
    for name in wanted:
        if name not in given:
            raise BadInput(f"{noun} {name!r} is missing", where=where, remedy="add it")


def _mismatches(item: object, spec: TensorSpec, definition: Definition) -> Iterator[tuple[str, str]]:
    if isinstance(item, CustomInput) and definition.custom_inputs_entrypoint is None:
        yield (
            "it is custom, but the definition has no custom_inputs_entrypoint",
            "name the function that makes it",
        )
    if isinstance(item, ScalarInput) and not spec.is_scalar:
        yield "a scalar is given for a tensor", "use random, safetensors or custom"
    elif isinstance(item, ScalarInput):
        yield from _scalar_mismatches(item.value, spec)
    if isinstance(item, SafetensorsInput):
        if spec.is_scalar:
            yield "a tensor is given for a scalar", "use scalar"
        if item.path.startswith("/") or ".." in item.path.split("/"):
            yield f"path {item.path!r} leaves the folder", "use a relative path without '..'"


def scalar_fault(value: object, spec: TensorSpec) -> str:
    """Say why `value` is none of a scalar input; empty if it is one."""
    if not isinstance(value, bool | int | float):
        return f"{shown(value)} is not a scalar"
    return next((what for what, _ in _scalar_mismatches(value, spec)), "")


def _scalar_mismatches(value: bool | int | float, spec: TensorSpec) -> Iterator[tuple[str, str]]:
    remedy = f"the input is {spec.dtype.value}"
    if spec.dtype is DType.BOOL:
        if not isinstance(value, bool):
            yield f"{shown(value)} is not a boolean", "write true or false"
    elif isinstance(value, bool):
        yield f"{shown(value)} is not a number", remedy
    elif spec.dtype.is_float:
        if not abs(value) <= sys.float_info.max:
            yield f"{shown(value)} is too large", remedy
    elif isinstance(value, float) and not value.is_integer():
        yield f"{shown(value)} is not an integer", remedy
    elif not -(1 << spec.dtype.bits - 1) <= value < 1 << spec.dtype.bits - 1:
        yield f"{shown(value)} does not fit", remedy
