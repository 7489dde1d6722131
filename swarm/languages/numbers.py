"""Numbers as a kernel gets them: their bytes as an argument, their bit pattern as a fill."""

from __future__ import annotations

import re
import struct

from swarm.errors import BadInput

INTEGERS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
FILLS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
}
"""Types that a fill can be a number of; of the others it can be 0 only."""


def bits(dtype: str) -> int:
    """Return the bits of one element; both float4 types are packed two to a byte."""
    digits = re.match(r"[a-z]+(\d+)", dtype)
    return 8 if digits is None else int(digits[1])


def pack(value: int | float, kind: str, where: str) -> bytes:
    """Return the bytes of an argument such as `n:i32`; BadInput if the type does not hold the value."""
    try:
        if kind == "bool":
            return struct.pack("<?", bool(value))
        if kind == "bf16":
            return _bfloat16(float(value))
        if kind in FLOATS:
            return struct.pack(f"<{FLOATS[kind]}", float(value))
        if value != int(value):
            raise BadInput(
                f"is {value}, not an integer", where=where, remedy="use //, ceildiv or a float type"
            )
        return struct.pack(f"<{INTEGERS[kind]}", int(value))
    except (struct.error, OverflowError):
        raise BadInput(
            f"is {value}, which {kind} does not hold", where=where, remedy="use a wider type"
        ) from None


def pattern(value: float, dtype: str, where: str) -> tuple[int, int]:
    """Return (unsigned value, width in bytes) to set memory of `dtype` to; the width is 1, 2 or 4."""
    if value == 0:
        return 0, 1
    if dtype not in FILLS:
        raise BadInput(f"fill {value:g} of {dtype}", where=where, remedy="only 0 can be filled in here")
    if value in (float("inf"), float("-inf")) and "float" not in dtype:
        raise BadInput(f"fill {value} of {dtype}", where=where, remedy="write an integer")
    data = pack(value, FILLS[dtype], where) if abs(value) != float("inf") else _infinite(value, FILLS[dtype])
    for width in (1, 2, 4):
        if data == data[:width] * (len(data) // width):
            return int.from_bytes(data[:width], "little"), width
    raise BadInput(f"fill {value:g} of {dtype}", where=where, remedy="fill it in a kernel: it needs 8 bytes")


def _bfloat16(value: float) -> bytes:
    """Round to nearest, ties to even."""
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16
    if rounded & 0x7FFF == 0x7F80:
        raise OverflowError
    return struct.pack("<H", rounded)


def _infinite(value: float, kind: str) -> bytes:
    return struct.pack("<f", value)[2:] if kind == "bf16" else struct.pack(f"<{FLOATS[kind]}", value)
