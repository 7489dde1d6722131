"""The words between a judge and the runner on its GPU: what to load, what to call, what came of it.

Framing and descriptors are swarm.judge.wire's. Nothing here trusts the other end: whatever does not read as
it must is None or an exception, never a guess. No packages are needed: the runner imports it in its box.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from swarm.languages.numbers import bits

HELLO, IDLE, READY, CLAIMS, FAILED, TRICK, FAULT = b"hello", b"i", b"r", b"c", b"!", b"t", b"?"
"""What a runner says: FAILED is the candidate's doing, TRICK is dishonest, FAULT is ours."""
GO, LOAD, CALL, RECORD, UNLOAD = b"G", b"L", b"C", b"R", b"U"
"""What a judge says; until GO a runner keeps its hands off the GPU."""
NONCE_BYTES = 8
TEXT_CHARS = 4000
MAX_SLOTS = 64
_CALL = struct.Struct("<BBBHQ")
_CLAIM = struct.Struct("<qqqqQqB")
_LENGTH = struct.Struct("<I")


class Clock(IntEnum):
    """What a call is timed with."""

    EVENTS = 0
    CUPTI = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The arguments of a call in the definition's order, inputs first: what the words of a slot mean."""

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int | str, ...] | None, ...]
    """A number, or the name of an axis that a call sizes; None for a Python scalar."""
    outputs: int
    """How many of the arguments, the last ones, are outputs."""
    axes: tuple[str, ...]
    """Those that a call sizes."""
    constants: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "dtypes": self.dtypes,
            "shapes": self.shapes,
            "outputs": self.outputs,
            "axes": self.axes,
            "constants": dict(self.constants),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Layout:
        return cls(
            names=tuple(given["names"]),
            dtypes=tuple(given["dtypes"]),
            shapes=tuple(None if shape is None else tuple(shape) for shape in given["shapes"]),
            outputs=given["outputs"],
            axes=tuple(given["axes"]),
            constants=dict(given["constants"]),
        )

    @property
    def slot_bytes(self) -> int:
        return 8 * (len(self.names) + len(self.axes))

    def pack(self, arguments: Sequence[int | float | bool], axes: Mapping[str, int]) -> bytes:
        """Write one slot: offsets of tensors and values of scalars, then the axes."""
        words = [
            struct.pack("<d" if self._is_float(index) else "<q", value)
            for index, value in enumerate(arguments)
        ]
        assert len(words) == len(self.names), "a slot has as many words as a call has arguments"
        return b"".join([*words, *(struct.pack("<q", axes[name]) for name in self.axes)])

    def unpack(self, data: bytes) -> tuple[list[int | float], dict[str, int]]:
        """Read one slot: its arguments, and the size of every axis, constant ones included."""
        count = len(self.names)
        codes = "".join("d" if self._is_float(index) else "q" for index in range(count))
        values = struct.unpack(f"<{codes}{len(self.axes)}q", data)
        return list(values[:count]), dict(self.constants) | dict(zip(self.axes, values[count:], strict=True))

    def shape(self, index: int, axes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a tensor in logical elements."""
        return tuple(dim if isinstance(dim, int) else axes[dim] for dim in self.shapes[index] or ())

    def nbytes(self, index: int, axes: Mapping[str, int]) -> int:
        """Return the bytes of a tensor."""
        return -(-math.prod(self.shape(index, axes)) * bits(self.dtypes[index]) // 8)

    def _is_float(self, index: int) -> bool:
        return self.shapes[index] is None and "float" in self.dtypes[index]


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a runner: its calls are queued back to back."""

    nonce: bytes
    clock: Clock
    spin_ns: int
    """How long the GPU has to be kept from each call, so that all of the call is queued by then."""
    is_first: bool
    """Of this workload: the first call is made some times before it is timed, so that all of it is loaded."""
    slots: tuple[bytes, ...]
    place: int = 0
    """Where the candidate was loaded: a process may hold two, to time them by one and the same clock."""

    def pack(self) -> bytes:
        head = _CALL.pack(self.place, self.clock, self.is_first, len(self.slots), self.spin_ns)
        return CALL + self.nonce + head + b"".join(self.slots)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        nonce = data[1 : 1 + NONCE_BYTES]
        at = 1 + NONCE_BYTES
        place, clock, is_first, count, spin_ns = _CALL.unpack_from(data, at)
        at += _CALL.size
        size = (len(data) - at) // count
        slots = tuple(data[at + index * size : at + (index + 1) * size] for index in range(count))
        return cls(nonce, Clock(clock), spin_ns, bool(is_first), slots, place)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a runner says of one call."""

    ns: int
    other_ns: int
    """By events, where CUPTI was asked for; else 0."""
    enqueue_ns: int
    """What it took the host to queue it."""
    activities: int
    """How many kernels, copies and fills it was; -1 if nobody counted."""
    signature: int
    blocks: int
    """Thread blocks of all its kernels; 0 if nobody counted."""
    is_late: bool
    """Its span began before all of it was queued."""


def pack_claims(nonce: bytes, claims: Sequence[Claim]) -> bytes:
    words = (
        _CLAIM.pack(c.ns, c.other_ns, c.enqueue_ns, c.activities, c.signature, c.blocks, c.is_late)
        for c in claims
    )
    return CLAIMS + nonce + b"".join(words)


def unpack_claims(data: bytes, nonce: bytes, count: int) -> list[Claim] | None:
    """Read the claims for a request of `count` calls; None if this is something else."""
    head = CLAIMS + nonce
    if not data.startswith(head) or len(data) != len(head) + count * _CLAIM.size:
        return None
    found = _CLAIM.iter_unpack(data[len(head) :])
    return [
        Claim(ns, other, queue, many, sign, blocks, bool(late))
        for ns, other, queue, many, sign, blocks, late in found
    ]


def pack_load(head: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Write what to load: a header, and files with their content, so that no path is needed in the box."""
    text = json.dumps(dict(head) | {"files": [[name, len(data)] for name, data in files.items()]}).encode()
    return LOAD + _LENGTH.pack(len(text)) + text + b"".join(files.values())


def unpack_load(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read what `pack_load` wrote."""
    at = 1 + _LENGTH.size
    (length,) = _LENGTH.unpack_from(data, 1)
    head = json.loads(data[at : at + length])
    at += length
    files = {}
    for name, size in head.pop("files"):
        files[name] = data[at : at + size]
        at += size
    return head, files
