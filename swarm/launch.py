"""How a `cuda` solution is launched, in solution.toml: [[launch]], [[memset]], [scratch] and [tensormap].

This is their form alone, with mistakes that show without the problem. What the expressions come to is said by
`languages.planning` and `languages.plan`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainValidator, field_validator, model_validator

from swarm import expressions
from swarm.definition import DType
from swarm.errors import BadInput
from swarm.schema import Flag, Float, Frozen, Int, shown, suggest, wrong

Param = int | float | str

OCCUPANCY = ("max_active_blocks", "max_active_clusters")
"""Functions of a kernel: blocks that fit on one multiprocessor, clusters that fit on the device."""
FACTS = ("num_sms", "smem_per_block_max", "l2_bytes", "arch")
"""What expressions may say of the device."""
ELEMENTS = (*(dtype.value for dtype in DType), "uint8", "uint16", "uint32", "uint64")
"""Element types of scratch memory."""
MAP_ELEMENTS = (*ELEMENTS, "tfloat32")
MAX_STEPS = 64
"""Of each kind, in a manifest."""
MAX_ARGUMENTS = 128
NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
KERNEL = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*\s*(<[\w\s:<>,.()+*/%&|-]*>)?", re.ASCII)
"""An extern "C" name, or a template with its arguments."""
MAX_KERNEL_CHARS = 300
VALUE_TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "bool")
"""What an argument that is a number may be passed as: `n:i32`."""


def _param(raw: object) -> Param:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise wrong("", f"{shown(raw)} is not allowed", "a parameter is a number or a word")
    if isinstance(raw, str) and not re.fullmatch(r"[A-Za-z_]\w{0,63}", raw, re.ASCII):
        raise wrong(
            "", f"{shown(raw)} is not allowed", "a text parameter is one word of letters, digits and '_'"
        )
    if isinstance(raw, float) and not abs(raw) < float("inf"):
        raise wrong("", f"{raw} is not allowed", "a parameter is finite")
    return raw


ParamValue = Annotated[int | float | str, PlainValidator(_param)]


def _expression(raw: object) -> str:
    """Take a number or the text of an expression that parses; its names are looked at later."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise wrong("", f"{shown(raw)} is not allowed", 'write a number or an expression such as "2 * BLOCK"')
    try:
        expressions.free_names(str(raw), calls=OCCUPANCY)
    except BadInput as error:
        raise wrong("", error.what, error.remedy or "") from None
    return str(raw)


Expression = Annotated[str, PlainValidator(_expression)]
Extent = Annotated[tuple[Expression, ...], Field(min_length=1, max_length=3)]
Extents = Annotated[tuple[Expression, ...], Field(min_length=1, max_length=5)]


def _name(raw: object) -> str:
    if not isinstance(raw, str) or not NAME.fullmatch(raw):
        raise wrong("", f"{shown(raw)} is not a name", "use letters, digits and '_'")
    return raw


Name = Annotated[str, PlainValidator(_name)]


def _element(raw: object) -> object:
    if raw not in MAP_ELEMENTS:
        raise wrong("", f"dtype {shown(raw)} is unknown", suggest(str(raw), MAP_ELEMENTS))
    return raw


Element = Annotated[str, BeforeValidator(_element)]


class Launch(Frozen):
    """[[launch]]: one kernel launch; all launches whose `when` holds run in the order of the file."""

    kernel: str
    when: Expression | None = None
    params: dict[str, ParamValue] = Field(default_factory=dict)
    """Of [params], what is different in the build of this launch's kernel."""
    grid: Extent
    block: Extent
    smem: Expression = "0"
    """Dynamic shared memory in bytes."""
    cluster: Extent | None = None
    cooperative: Flag = False
    pdl: Flag = False
    """May start before the launch before it is over; the kernel waits for it by griddepcontrol.wait."""
    repeat: Expression | None = None
    index: Name = "i"
    """What expressions call the number of the repetition, from 0."""
    args: tuple[str, ...] = Field(default=(), max_length=MAX_ARGUMENTS)

    @field_validator("kernel")
    @classmethod
    def _is_a_kernel(cls, kernel: str) -> str:
        if len(kernel) > MAX_KERNEL_CHARS or not KERNEL.fullmatch(kernel):
            raise wrong("", f"{shown(kernel)} is not a kernel", 'write "name" or "name<template arguments>"')
        if kernel.startswith("swarm_"):
            raise wrong("", f"{shown(kernel)} is one of our names", "do not start it with swarm_")
        return kernel

    @field_validator("args")
    @classmethod
    def _are_arguments(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(args):
            if argument_fault := _argument_fault(text):
                raise wrong(str(number), *argument_fault)
        return args


class Memset(Frozen):
    """[[memset]]: bytes set to one value, just before a launch."""

    target: Name
    """An output or scratch memory."""
    value: Annotated[Int, Field(ge=0, le=255)] = 0
    offset: Expression = "0"
    bytes: Expression | None = None
    """From `offset` on; without it, to the end."""
    when: Expression | None = None
    before: Annotated[Int, Field(ge=0)] = 0
    """The number of the launch that it precedes, from 0; the number of launches: after all of them."""


class Scratch(Frozen):
    """[scratch.NAME]: device memory that one call's launches share."""

    dtype: Element
    shape: Extents
    fill: Float | None = None
    """Set in every call, inside the timed span; without it the memory is poisoned before each call."""

    @field_validator("fill")
    @classmethod
    def _is_a_number(cls, fill: float | None) -> float | None:
        if fill is not None and math.isnan(fill):
            raise wrong("", "nan is not allowed", "use a number or inf")
        return fill

    @field_validator("dtype")
    @classmethod
    def _is_stored(cls, dtype: str) -> str:
        if dtype not in ELEMENTS:
            raise wrong("", f"dtype {shown(dtype)} is for tensor maps", "use float32")
        return dtype


class TensorMap(Frozen):
    """[tensormap.NAME]: a TMA descriptor of a tensor or scratch memory, or several at different offsets."""

    of: Name
    dtype: Element | None = None
    """By default that of the memory; types without a TMA type of their own go as unsigned integers."""
    dims: Extents
    """In elements, innermost first."""
    strides: Annotated[tuple[Expression, ...], Field(max_length=4)] | None = None
    """In bytes, of all but the innermost dimension; by default dense."""
    box: Extents
    element_strides: Extents | None = None
    swizzle: Literal["none", 32, 64, 128] = "none"
    interleave: Literal["none", 16, 32] = "none"
    l2: Literal["none", 64, 128, 256] = "none"
    """Bytes of L2 promotion."""
    fill: Literal["none", "nan"] = "none"
    """What elements outside of `dims` read as: zero or NaN."""
    place: Literal["param", "scratch"] = Field(default="param", alias="in")
    """A __grid_constant__ parameter, or device memory that an argument points to."""
    count: Expression = "1"
    index: Name = "i"
    offset: Expression = "0"
    """Bytes from the start of the memory, for each `index` below `count`."""

    @model_validator(mode="after")
    def _has_one_rank(self) -> TensorMap:
        rank = len(self.dims)
        lengths = {
            "box": (len(self.box), rank),
            "strides": (rank - 1 if self.strides is None else len(self.strides), rank - 1),
            "element_strides": (rank if self.element_strides is None else len(self.element_strides), rank),
        }
        for field, (length, wanted) in lengths.items():
            if length != wanted:
                raise wrong(field, f"{length} values for {rank} dims", f"give {wanted}")
        return self


def argument(text: str) -> tuple[str, str]:
    """Return (expression, type) of an argument that is a number, or (name, "") of one that is memory."""
    expression, colon, kind = text.rpartition(":")
    return (expression.strip(), kind.strip()) if colon else (text.strip(), "")


def check_plan_tables(
    launches: tuple[Launch, ...],
    memsets: tuple[Memset, ...],
    scratch: Mapping[str, Scratch],
    tensormaps: Mapping[str, TensorMap],
    params: Mapping[str, Param],
) -> None:
    """Raise what is wrong between the tables of one manifest."""
    tables = {"launch": launches, "memset": memsets, "scratch": scratch, "tensormap": tensormaps}
    for table, entries in tables.items():
        if len(entries) > MAX_STEPS:
            raise wrong(table, f"{len(entries)} entries", f"use at most {MAX_STEPS}")
    if not launches:
        raise wrong("launch", "nothing is launched", "add a [[launch]] with kernel, grid, block and args")
    for number, launch in enumerate(launches):
        _check_launch(f"launch.{number}", launch, params)
    for number, memset in enumerate(memsets):
        if memset.before > len(launches):
            raise wrong(
                f"memset.{number}.before",
                f"{memset.before} is not the number of a launch",
                f"use at most {len(launches)}, which is after all of them",
            )
    for name in tensormaps:
        if name in scratch:
            raise wrong(f"tensormap.{name}", f"{name!r} is scratch memory too", "rename one of them")
    for table, named in (("scratch", scratch), ("tensormap", tensormaps)):
        for name in named:
            if not NAME.fullmatch(name):
                raise wrong(table, f"the name {shown(name)} is not allowed", "use letters, digits and '_'")


def _check_launch(field: str, launch: Launch, params: Mapping[str, Param]) -> None:
    for name, value in launch.params.items():
        if name not in params:
            raise wrong(f"{field}.params.{name}", "no such parameter", suggest(name, params))
        if type(value) is not type(params[name]):
            raise wrong(
                f"{field}.params.{name}",
                f"{shown(value)} is not of the type of params.{name}",
                f"write a {type(params[name]).__name__}",
            )
    if launch.repeat is not None and launch.index in (*params, *FACTS):
        raise wrong(f"{field}.index", f"{launch.index!r} has a meaning already", "choose another name")


def _argument_fault(text: str) -> tuple[str, str] | None:
    expression, kind = argument(text)
    if not kind:
        if NAME.fullmatch(expression):
            return None
        return f"{shown(text)} is neither memory nor a number with a type", 'write "name" or "2 * n:i32"'
    if kind not in VALUE_TYPES:
        return f"{shown(text)}: type {shown(kind)} is unknown", suggest(kind, VALUE_TYPES)
    try:
        expressions.free_names(expression, calls=OCCUPANCY)
    except BadInput as error:
        return error.what, error.remedy or ""
    return None


def render_plan_tables(
    launches: Iterable[Launch],
    memsets: Iterable[Memset],
    scratch: Mapping[str, Scratch],
    tensormaps: Mapping[str, TensorMap],
) -> Iterator[str]:
    """Yield the lines of these tables in solution.toml."""
    for name, memory in scratch.items():
        yield from ("", f"[scratch.{name}]", *_fields(memory))
    for name, tensormap in tensormaps.items():
        yield from ("", f"[tensormap.{name}]", *_fields(tensormap))
    for launch in launches:
        yield from ("", "[[launch]]", *_fields(launch))
    for memset in memsets:
        yield from ("", "[[memset]]", *_fields(memset))


def toml_value(value: object) -> str:
    """Write a value of a manifest."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml_value(item)}' for name, item in value.items())} }}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _fields(table: Frozen) -> Iterator[str]:
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if value != field.get_default(call_default_factory=True):
            yield f"{field.alias or name} = {toml_value(value)}"
