"""Tensor maps for TMA: what cuTensorMapEncodeTiled demands, found before it is called and said in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from swarm.errors import BadInput
from swarm.languages.names import Names
from swarm.languages.steps import MAP_BYTES, MapSpec

MAX_MAPS = 4096
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
MAX_DIM = 1 << 32
MAX_STRIDE = 1 << 40
UNIT = 16
"""Global strides and addresses, and the inner extent of a box, are multiples of so many bytes."""

TYPES = {
    "float64": ("FLOAT64", 8),
    "float32": ("FLOAT32", 4),
    "tfloat32": ("TFLOAT32", 4),
    "float16": ("FLOAT16", 2),
    "bfloat16": ("BFLOAT16", 2),
    "float8_e4m3fn": ("UINT8", 1),
    "float8_e5m2": ("UINT8", 1),
    "float4_e2m1": ("UINT8", 1),
    "float4_e2m1fn_x2": ("UINT8", 1),
    "int64": ("INT64", 8),
    "int32": ("INT32", 4),
    "int16": ("UINT16", 2),
    "int8": ("UINT8", 1),
    "bool": ("UINT8", 1),
    "uint64": ("UINT64", 8),
    "uint32": ("UINT32", 4),
    "uint16": ("UINT16", 2),
    "uint8": ("UINT8", 1),
}
"""Element type -> CUDA's name, bytes. What is packed two to a byte counts as bytes."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """One [tensormap] table."""

    buffer: str
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...] | None
    box: tuple[str, ...]
    element_strides: tuple[str, ...] | None
    swizzle: int
    """0 for none, else bytes; likewise the next two."""
    interleave: int
    l2: int
    is_nan_filled: bool
    in_memory: bool
    count: str
    index: str
    offset: str


def resolve(item: TensorMap, names: Names, sizes: Mapping[str, int], where: str) -> MapSpec:
    """Return the maps with their numbers; `sizes` are the bytes of every buffer."""
    spec = numbered(item, names, where)
    _check(spec, item, TYPES[item.dtype][1], sizes[item.buffer], where)
    return spec


def numbered(item: TensorMap, names: Names, where: str) -> MapSpec:
    """Return the maps with their numbers, whatever these are."""
    type_name, width = TYPES[item.dtype]
    dims = tuple(names.positive(text, f"{where}.dims[{n}]") for n, text in enumerate(item.dims))
    if item.strides is None:
        strides = tuple(math.prod(dims[: n + 1]) * width for n in range(len(dims) - 1))
    else:
        strides = tuple(names.natural(text, f"{where}.strides[{n}]") for n, text in enumerate(item.strides))
    element_strides = (
        (1,) * len(dims)
        if item.element_strides is None
        else tuple(
            names.positive(text, f"{where}.element_strides[{n}]")
            for n, text in enumerate(item.element_strides)
        )
    )
    count = names.positive(item.count, f"{where}.count")
    if count > MAX_MAPS:
        raise BadInput(f"{item.count!r} is {count}", where=f"{where}.count", remedy=f"use at most {MAX_MAPS}")
    return MapSpec(
        buffer=item.buffer,
        type=type_name,
        dims=dims,
        strides=strides,
        box=tuple(names.positive(text, f"{where}.box[{n}]") for n, text in enumerate(item.box)),
        element_strides=element_strides,
        swizzle=f"SWIZZLE_{item.swizzle}B" if item.swizzle else "SWIZZLE_NONE",
        interleave=f"INTERLEAVE_{item.interleave}B" if item.interleave else "INTERLEAVE_NONE",
        l2=f"L2_PROMOTION_L2_{item.l2}B" if item.l2 else "L2_PROMOTION_NONE",
        oob="FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA" if item.is_nan_filled else "FLOAT_OOB_FILL_NONE",
        offsets=tuple(
            names.having(item.index, n).natural(item.offset, f"{where}.offset") for n in range(count)
        ),
    )


def nbytes(spec: MapSpec) -> int:
    """Return the bytes that the encoded maps take."""
    return MAP_BYTES * len(spec.offsets)


def _check(spec: MapSpec, item: TensorMap, width: int, size: int, where: str) -> None:
    unit = 2 * UNIT if item.interleave == 32 else UNIT
    if strided := [n for n, stride in enumerate(spec.strides) if stride % unit or stride >= MAX_STRIDE]:
        n = strided[0]
        raise BadInput(
            f"the stride of dimension {n + 1} is {spec.strides[n]} bytes",
            where=f"{where}.strides[{n}]" if item.strides is not None else f"{where}.dims[{n}]",
            remedy=f"TMA wants a multiple of {unit} below 2**40; copy to padded scratch, or use loads",
        )
    for n, dim in enumerate(spec.dims):
        if dim > MAX_DIM:
            raise BadInput(
                f"{item.dims[n]!r} is {dim}", where=f"{where}.dims[{n}]", remedy="use at most 2**32"
            )
        if spec.box[n] > MAX_BOX:
            raise BadInput(
                f"{item.box[n]!r} is {spec.box[n]}",
                where=f"{where}.box[{n}]",
                remedy=f"use at most {MAX_BOX} and several copies",
            )
        if spec.element_strides[n] > MAX_ELEMENT_STRIDE:
            raise BadInput(
                f"{spec.element_strides[n]}",
                where=f"{where}.element_strides[{n}]",
                remedy=f"use at most {MAX_ELEMENT_STRIDE}",
            )
    _check_inner(spec, item, width, where)
    extent = width * spec.dims[0] + sum(
        stride * (dim - 1) for stride, dim in zip(spec.strides, spec.dims[1:], strict=True)
    )
    for n, offset in enumerate(spec.offsets):
        if offset % unit:
            raise BadInput(
                f"map {n} starts at byte {offset}",
                where=f"{where}.offset",
                remedy=f"use a multiple of {unit}",
            )
        if offset + extent > size:
            raise BadInput(
                f"map {n} reaches byte {offset + extent} of {spec.buffer}, which has {size}",
                where=f"{where}.dims",
                remedy="keep dims, strides and offset inside the memory",
            )


def _check_inner(spec: MapSpec, item: TensorMap, width: int, where: str) -> None:
    """Check what depends on the innermost dimension of the box."""
    inner = spec.box[0] * width
    field = f"{where}.box[0]"
    if item.interleave:
        if len(spec.dims) < 3:
            raise BadInput(
                f"{len(spec.dims)} dims", where=f"{where}.interleave", remedy="interleaving needs at least 3"
            )
        if item.interleave == 32 and item.swizzle != 32:
            raise BadInput(
                "interleave 32 without swizzle 32", where=f"{where}.interleave", remedy="write swizzle = 32"
            )
        return
    if inner % UNIT:
        raise BadInput(
            f"{spec.box[0]} elements of {width} bytes", where=field, remedy=f"use a multiple of {UNIT} bytes"
        )
    if item.swizzle and inner > item.swizzle:
        raise BadInput(
            f"{inner} bytes in a row of the box, with swizzle {item.swizzle}",
            where=field,
            remedy=f"use at most {item.swizzle // width} elements, and several copies",
        )
    if item.is_nan_filled and not spec.type.endswith(("FLOAT16", "FLOAT32", "FLOAT64")):
        raise BadInput(f"nan for {item.dtype}", where=f"{where}.fill", remedy="only floats have a NaN here")
