"""Recorded calls without the addresses of the process that was recorded: what our own launcher runs instead.

A recording says at which addresses a call worked. That is only a claim, so it is read as text of a stranger;
what it comes to is checked and timed by being run. An address becomes a buffer of the call or of its scratch
memory, and an offset; whatever is left must be the same in two recordings at different places.
Standard library only: the runner imports it in its box.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swarm.errors import BadInput
from swarm.languages.steps import MAP_BYTES, Arg, Calls, CopyStep, Dim, KernelStep, MemsetStep, Recorded, Step

MAX_STEPS, MAX_PARAMETERS, MAX_BLOCK_BYTES = 4096, 1024, 32_764
MAX_SCRATCH_BYTES = 8 << 30
MAX_IMAGES = 1024
WORD = 8
ADDRESSES = 1 << 64
SYMBOL_CHARS, TOLD_CHARS = 4096, 80
LEGACY_STREAMS = (0, 1)
"""Two names of one stream."""
IGNORED_ATTRIBUTES = (0, 3, 5, 8, 14)
"""Nothing, how the host waits, and three preferences: how clusters are spread, which stream goes first, how
much of the cache is shared memory."""
ACCESS_WINDOW, COOPERATIVE, CLUSTER, PDL = 1, 2, 4, 6
"""CUlaunchAttributeID; every other one is more than we would launch with."""
TAPE = "tape.json"


class Unreplayable(Exception):
    """Why a candidate's calls cannot be made without it; its text is for the record."""


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer of the recorded call, in the arena."""

    name: str
    """As the launcher knows it: `input:x`, `output:y`."""
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Recording:
    """What a runner wrote: where its arena was, the steps of each call, the code that they launch."""

    arena: int
    calls: tuple[Mapping[str, Any], ...]
    images: Mapping[int, bytes]


Script = tuple[tuple[Step, ...], tuple[tuple[str, int], ...]]
"""The steps of a call, and the bytes of each of its scratch buffers."""
Key = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int | float | bool], ...]]
"""The axes and the scalars of a call."""


def key_of(axes: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> Key:
    return tuple(sorted(axes.items())), tuple(sorted(scalars.items()))


@dataclass(slots=True)
class Tape:
    """The recorded calls of one candidate, by what they are called with, and their code."""

    scripts: dict[Key, Script] = field(default_factory=dict)
    images: list[bytes] = field(default_factory=list)
    parameters: dict[tuple[int, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """(offset, size) of each, by image and symbol."""

    def add(self, recording: Recording, places: Sequence[Sequence[Place]], key: Key) -> None:
        """Take the calls of one workload, recorded with their buffers at `places`; or raise Unreplayable."""
        if len(recording.calls) != len(places):
            raise Unreplayable(f"{len(recording.calls)} of {len(places)} calls were recorded")
        scripts = [
            _Reader(self, recording, at).script(call)
            for call, at in zip(recording.calls, places, strict=True)
        ]
        moved = [_without_maps(script) for script in scripts]
        for number in range(1, len(scripts)):
            if moved[number - 1] == moved[number]:
                self.scripts[key] = scripts[number]
                return
        raise Unreplayable(f"its calls differ: {difference(*moved[-2:])}")

    def resolve(self, axes: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> Calls:
        """Return what a call does; BadInput if none like it was recorded."""
        found = self.scripts.get(key_of(axes, scalars))
        if found is None:
            raise BadInput(
                "no call with these sizes and numbers was recorded",
                where=TAPE,
                remedy="let numbers be those of the workload",
            )
        steps, scratch = found
        return Calls(steps, dict(scratch), frozenset(), {})

    def image(self, code: bytes) -> int:
        """Return the number of an image; what is loaded again is still the same code."""
        if code not in self.images:
            if len(self.images) >= MAX_IMAGES:
                raise Unreplayable(f"it launches kernels from more than {MAX_IMAGES} pieces of code")
            self.images.append(code)
        return self.images.index(code)

    def files(self) -> dict[str, bytes]:
        """Return what a runner loads this from, beside a table of the kernels."""
        scripts = [
            {"axes": key[0], "scalars": key[1], "steps": [_to_json(s) for s in steps], "scratch": scratch}
            for key, (steps, scratch) in self.scripts.items()
        ]
        return {
            TAPE: json.dumps(scripts).encode(),
            **{f"{number}.cubin": code for number, code in enumerate(self.images)},
        }

    @classmethod
    def from_json(cls, data: bytes) -> Tape:
        """Read what `files` wrote, for `resolve`."""
        scripts = {}
        for one in json.loads(data):
            key = tuple((n, v) for n, v in one["axes"]), tuple((n, v) for n, v in one["scalars"])
            scratch = tuple((name, nbytes) for name, nbytes in one["scratch"])
            scripts[key] = tuple(map(_from_json, one["steps"])), scratch
        return cls(scripts)


def read(data: bytes) -> Recording:
    """Read what a runner wrote: a line of JSON, then the images."""
    try:
        head, _, rest = data.partition(b"\n")
        told = json.loads(head)
        images, at = {}, 0
        for number, nbytes in told["images"]:
            images[_int(number)] = rest[at : at + _int(nbytes, len(rest) - at)]
            at += nbytes
        calls = told["calls"]
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise TypeError("calls")
        return Recording(_int(told["arena"]), tuple(calls), images)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unreplayable(f"its recording is none: {type(error).__name__}") from None


def joined(parts: Sequence[Recording]) -> Recording:
    """Return one process's recordings of one workload as one."""
    if len({part.arena for part in parts}) > 1:
        raise Unreplayable("the judge's memory moved while it was recorded")
    images = {number: code for part in parts for number, code in part.images.items()}
    return Recording(parts[0].arena, tuple(call for part in parts for call in part.calls), images)


class _Reader:
    """One recorded call at its places."""

    def __init__(self, tape: Tape, recording: Recording, places: Sequence[Place]) -> None:
        self._tape = tape
        self._recording = recording
        self._places = places
        self._scratch: dict[tuple[int, int], str] = {}
        """Names by (begin, bytes), numbered as the call comes to them."""

    def script(self, call: Mapping[str, Any]) -> Script:
        try:
            return self._script(call)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Unreplayable(f"its recording is none: {type(error).__name__}") from None

    def _script(self, call: Mapping[str, Any]) -> Script:
        if marks := call["marks"]:
            told = "".join(char for char in str(marks[0])[:TOLD_CHARS] if char.isprintable())
            raise Unreplayable(f"a call uses {told}, which is not replayed")
        raw = call["steps"]
        if not 0 < len(raw) <= MAX_STEPS:
            raise Unreplayable(f"{len(raw)} launches, fills and copies were seen in a call")
        streams = {0 if one["stream"] in LEGACY_STREAMS else _int(one["stream"]) for one in raw}
        if len(streams) > 1:
            raise Unreplayable(f"it works on {len(streams)} streams at a time")
        steps = tuple(map(self._step, raw, range(len(raw))))
        scratch = tuple((name, nbytes) for (_, nbytes), name in self._scratch.items())
        if sum(nbytes for _, nbytes in scratch) > MAX_SCRATCH_BYTES:
            raise Unreplayable(f"it works in more than {MAX_SCRATCH_BYTES >> 30} GiB of memory of its own")
        return steps, scratch

    def _step(self, raw: Mapping[str, Any], number: int) -> Step:
        if raw["kind"] == "fill":
            buffer, offset = self._found(*raw["to"])
            width = _int(raw["width"])
            if width not in (1, 2, 4):
                raise ValueError("width")
            value = _int(raw["value"], (1 << 8 * width) - 1)
            return MemsetStep(buffer, offset, _int(raw["count"]) * width, value, width)
        if raw["kind"] == "copy":
            return CopyStep(*self._found(*raw["to"]), *self._found(*raw["from"]), _int(raw["bytes"]))
        return self._launch(raw, number)

    def _launch(self, raw: Mapping[str, Any], number: int) -> KernelStep:
        symbol = bytes.fromhex(raw["symbol"]).decode("ascii")
        if not symbol.isprintable():
            raise ValueError("symbol")
        image = self._tape.image(self._recording.images[_int(raw["image"])])
        data = bytearray(bytes.fromhex(raw["data"]))
        if (
            len(symbol) > SYMBOL_CHARS
            or len(data) > MAX_BLOCK_BYTES
            or len(raw["parameters"]) > MAX_PARAMETERS
        ):
            raise ValueError("a launch")
        parameters = tuple(
            (_int(offset, len(data)), _int(size, len(data))) for offset, size in raw["parameters"]
        )
        if self._tape.parameters.setdefault((image, symbol), parameters) != parameters:
            raise Unreplayable(f"the parameters of {symbol[:TOLD_CHARS]} change")
        words = [(_int(at, len(data) - WORD), *self._found(*place)) for at, *place in raw["words"]]
        maps = [(_int(at, len(data) - MAP_BYTES), *self._found(*place)) for at, *place in raw["maps"]]
        for at, _, _ in words:
            data[at : at + WORD] = bytes(WORD)
        args = tuple(_argument(data, offset, size, words, maps) for offset, size in parameters)
        if sum(len(arg.words) + len(arg.maps) for arg in args) != len(words) + len(maps):
            raise Unreplayable(f"an address in {symbol[:TOLD_CHARS]} is part of no parameter")
        cluster, cooperative, pdl = _attributes(raw["attributes"])
        grid, block = _dim(raw["grid"]), _dim(raw["block"])
        return KernelStep(
            symbol, image, grid, block, _int(raw["smem"], 1 << 20), cluster, cooperative, pdl, args, number
        )

    def _found(self, address: int, begin: int, nbytes: int) -> tuple[str, int]:
        """Return the buffer that an address is in, and how far."""
        if begin == self._recording.arena:
            at = _int(address) - begin
            for place in sorted(self._places, key=lambda place: place.offset, reverse=True):
                if place.offset <= at <= place.offset + place.nbytes:  # an end may be a parameter, too
                    return place.name, at - place.offset
            raise Unreplayable("it uses the judge's memory outside of the call's own buffers")
        offset = _int(_int(address) - _int(begin), _int(nbytes))
        return self._scratch.setdefault((begin, nbytes), f"scratch:{len(self._scratch)}"), offset


def difference(before: Script, after: Script) -> str:
    """Say in what two calls differ that should be the same but for their addresses."""
    (steps, scratch), (others, other_scratch) = before, after
    if len(steps) != len(others):
        return f"{len(others)} launches, fills and copies after {len(steps)}"
    for number, (one, other) in enumerate(zip(steps, others, strict=True), 1):
        if one == other:
            continue
        if not isinstance(one, KernelStep) or not isinstance(other, KernelStep):
            return f"step {number} fills or copies other memory, or other bytes"
        if (one.kernel, one.variant) != (other.kernel, other.variant):
            return f"step {number} launches another kernel"
        if one.args == other.args:
            return f"step {number} launches {one.kernel[:TOLD_CHARS]} with another shape"
        at = next(k for k, (a, b) in enumerate(zip(one.args, other.args, strict=True)) if a != b)
        return (
            f"parameter {at} of {one.kernel[:TOLD_CHARS]} in step {number} changes with more than its buffers"
        )
    return f"{len(other_scratch)} pieces of memory of its own after {len(scratch)}, or of other sizes"


def _without_maps(script: Script) -> Script:
    """Leave out what two maps of other addresses differ in: their first word."""
    steps, scratch = script
    return tuple(
        replace(step, args=tuple(map(_without_map, step.args))) if isinstance(step, KernelStep) else step
        for step in steps
    ), scratch


def _without_map(arg: Arg) -> Arg:
    if not isinstance(arg, Recorded):
        return arg
    data = bytearray(arg.data)
    for at, _, _ in arg.maps:
        data[at : at + WORD] = bytes(WORD)
    return replace(arg, data=bytes(data))


def _argument(
    data: bytearray,
    offset: int,
    size: int,
    words: Sequence[tuple[int, str, int]],
    maps: Sequence[tuple[int, str, int]],
) -> Recorded:
    def within(found: Sequence[tuple[int, str, int]], length: int) -> tuple[tuple[int, str, int], ...]:
        return tuple(
            (at - offset, buffer, to)
            for at, buffer, to in found
            if offset <= at and at + length <= offset + size
        )

    return Recorded(bytes(data[offset : offset + size]), within(words, WORD), within(maps, MAP_BYTES))


def _attributes(raw: Sequence[Sequence[Any]]) -> tuple[Dim | None, bool, bool]:
    cluster, cooperative, pdl = None, False, False
    for number, text in raw:
        value = bytes.fromhex(text)
        if number == CLUSTER:
            cluster = _dim([int.from_bytes(value[at : at + 4], "little") for at in (0, 4, 8)])
        elif number == COOPERATIVE:
            cooperative = any(value[:4])
        elif number == PDL:
            pdl = any(value[:4])
        elif number == ACCESS_WINDOW and not any(value[8:16]):  # of no bytes
            continue
        elif number not in IGNORED_ATTRIBUTES:
            raise Unreplayable(f"a launch has attribute {_int(number)}, which is not replayed")
    return cluster, cooperative, pdl


def _dim(raw: Sequence[Any]) -> Dim:
    x, y, z = (_int(value, (1 << 31) - 1) for value in raw)
    return x, y, z


def _int(value: Any, most: int = ADDRESSES - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("a number")
    return value


def _to_json(step: Step) -> list[Any]:
    if isinstance(step, MemsetStep):
        return ["fill", step.buffer, step.offset, step.nbytes, step.value, step.width]
    if isinstance(step, CopyStep):
        return ["copy", step.to, step.to_offset, step.source, step.source_offset, step.nbytes]
    args = [[arg.data.hex(), arg.words, arg.maps] for arg in step.args if isinstance(arg, Recorded)]
    shape = [step.grid, step.block, step.smem, step.cluster, step.cooperative, step.pdl]
    return ["launch", step.kernel, step.variant, *shape, args, step.launch]


def _from_json(raw: list[Any]) -> Step:
    kind, *rest = raw
    if kind == "fill":
        return MemsetStep(*rest)
    if kind == "copy":
        return CopyStep(*rest)
    kernel, variant, grid, block, smem, cluster, cooperative, pdl, args, number = rest
    recorded = tuple(
        Recorded(
            bytes.fromhex(data),
            tuple((at, buffer, offset) for at, buffer, offset in words),
            tuple((at, buffer, offset) for at, buffer, offset in maps),
        )
        for data, words, maps in args
    )
    shape = tuple(grid), tuple(block), smem, None if cluster is None else tuple(cluster)
    return KernelStep(kernel, variant, *shape, cooperative, pdl, recorded, number)
