"""A safetensors file: a JSON header that says where each tensor's bytes are. Nothing in it is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from swarm.definition import DType
from swarm.errors import BadInput
from swarm.schema import suggest

LENGTH_BYTES = 8
NAMES = {
    DType.FLOAT64: ("F64",),
    DType.FLOAT32: ("F32",),
    DType.FLOAT16: ("F16",),
    DType.BFLOAT16: ("BF16",),
    DType.FLOAT8_E4M3FN: ("F8_E4M3",),
    DType.FLOAT8_E5M2: ("F8_E5M2",),
    DType.FLOAT4_E2M1: ("F4", "U8", "I8"),
    DType.FLOAT4_E2M1FN_X2: ("F4", "U8", "I8"),
    DType.INT64: ("I64",),
    DType.INT32: ("I32",),
    DType.INT16: ("I16",),
    DType.INT8: ("I8",),
    DType.BOOL: ("BOOL",),
}
"""What the format calls our element types; packed float4 is often kept as bytes."""


def write(tensors: Mapping[str, tuple[DType, tuple[int, ...], bytes]]) -> bytes:
    """Return a file that holds these tensors: of a type, of a shape, with these bytes."""
    header, content = {}, b""
    for key, (dtype, shape, data) in sorted(tensors.items()):
        offsets = [len(content), len(content) + len(data)]
        header[key] = {"dtype": NAMES[dtype][0], "shape": shape, "data_offsets": offsets}
        content += data
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % LENGTH_BYTES)
    return len(head).to_bytes(LENGTH_BYTES, "little") + head + content


def find(path: str, files: Iterable[str]) -> str:
    """Return the file that `path` means: itself, or what is there without its leading folders."""
    known, parts = list(files), path.split("/")
    for start in range(len(parts)):
        name = "/".join(parts[start:])
        if name in known:
            return name
    raise BadInput(f"no file {path!r} in the problem's folder", remedy="put it there")


def tensor_bytes(
    files: Mapping[str, bytes], path: str, key: str, dtype: DType, shape: tuple[int, ...]
) -> bytes:
    """Return the bytes of tensor `key`; BadInput naming the file if it is not of this type and shape."""
    name = find(path, files)
    data = files[name]
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    entries = _header(data[LENGTH_BYTES : LENGTH_BYTES + length], name)
    if key not in entries:
        raise BadInput(f"no tensor {key!r}", where=name, remedy=suggest(key, set(entries) - {"__metadata__"}))
    found, dims, (begin, end) = _entry(entries[key], key, name)
    stored = (*shape[:-1], math.ceil(shape[-1] / 2)) if dtype.is_packed and shape else shape
    if dims not in (shape, stored):
        raise BadInput(
            f"tensor {key!r} is of shape {list(dims)}, not {list(shape)}",
            where=name,
            remedy="correct the workload",
        )
    if found not in NAMES[dtype]:
        raise BadInput(
            f"tensor {key!r} is of type {found}, not {dtype}", where=name, remedy="correct the definition"
        )
    start = LENGTH_BYTES + length
    content = data[start + begin : start + end]
    wanted = math.prod(stored) if dtype.is_packed else math.prod(shape) * dtype.bits // 8
    if len(content) != wanted:
        raise BadInput(
            f"tensor {key!r} has {len(content)} bytes, not {wanted}", where=name, remedy="write it again"
        )
    return content


def _header(data: bytes, where: str) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise BadInput("not a safetensors file", where=where, remedy="write it again")
    return header


def _entry(raw: Any, key: str, where: str) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    try:
        begin, end = map(int, raw["data_offsets"])
        dims = tuple(map(int, raw["shape"]))
        if not 0 <= begin <= end:
            raise ValueError(f"its bytes are from {begin} to {end}")
        return str(raw["dtype"]), dims, (begin, end)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"tensor {key!r} is not described: {error!r}", where=where, remedy="write it again"
        ) from None
