"""Relocation: what a call did at some addresses is what the launcher does at any others, or it is refused."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.judge.cuda.launcher import _relocated
from swarm.judge.cuda.replay_tape import (
    MAX_SCRATCH_BYTES,
    TAPE,
    Place,
    Recording,
    Tape,
    Unreplayable,
    key_of,
    read,
)
from swarm.languages.steps import CopyStep, KernelStep, MemsetStep, Recorded

Json = dict[str, Any]
KEY = key_of({"n": 4}, {"eps": 1e-5})
SIZES = {"input:x": 4096, "input:w": 64, "output:y": 4096}
SCRATCH = (1 << 20, 512)


@dataclass(frozen=True)
class Where:
    """The addresses of one call."""

    arena: int
    offsets: tuple[int, ...]
    """Of the buffers of SIZES."""
    scratch: tuple[int, ...]

    def address(self, buffer: str, offset: int) -> int:
        return self.begin(buffer) + offset

    def begin(self, buffer: str) -> int:
        if buffer.startswith("scratch:"):
            return self.scratch[int(buffer.removeprefix("scratch:"))]
        return self.arena + self.offsets[list(SIZES).index(buffer)]

    def told(self, buffer: str, offset: int) -> list[int]:
        """Return an address as the shim tells it."""
        address = self.address(buffer, offset)
        if buffer.startswith("scratch:"):
            number = int(buffer.removeprefix("scratch:"))
            return [address, self.scratch[number], SCRATCH[number]]
        return [address, self.arena, 1 << 24]

    def places(self) -> list[Place]:
        return [Place(name, at, size) for (name, size), at in zip(SIZES.items(), self.offsets, strict=True)]


Parameter = bytes | tuple[str, int]
"""Eight bytes of a number, or a buffer and an offset into it."""


def launch(parameters: Sequence[Parameter], at: Where, **changes: Any) -> Json:
    """Return a launch as the shim tells it."""
    data, words = b"", []
    for number, parameter in enumerate(parameters):
        if isinstance(parameter, bytes):
            data += parameter
        else:
            data += struct.pack("<Q", at.address(*parameter))
            words.append([8 * number, *at.told(*parameter)])
    step = {
        "kind": "launch",
        "stream": 0,
        "image": 3,
        "symbol": b"kernel".hex(),
        "grid": [2, 1, 1],
        "block": [32, 1, 1],
        "smem": 0,
        "attributes": [],
        "parameters": [[8 * number, 8] for number in range(len(parameters))],
        "data": data.hex(),
        "words": words,
        "maps": [],
    }
    return step | changes


def recording(calls: Sequence[Sequence[Json]], arena: int) -> Recording:
    told = tuple({"marks": [], "steps": list(steps)} for steps in calls)
    return Recording(arena, told, {3: b"code"})


def taped(calls: Sequence[tuple[Sequence[Json], Where]]) -> Tape:
    tape = Tape()
    tape.add(
        recording([steps for steps, _ in calls], calls[0][1].arena), [at.places() for _, at in calls], KEY
    )
    return tape


def steps(tape: Tape) -> Sequence[KernelStep | MemsetStep | CopyStep]:
    return tape.resolve(dict(KEY[0]), dict(KEY[1])).steps


@st.composite
def wheres(draw: st.DrawFn, arena: int) -> Where:
    """Return places that do not overlap: in steps of more than any buffer has."""
    slots = draw(st.permutations(range(16)))
    far = draw(st.permutations(range(64)))
    return Where(
        arena,
        tuple(8192 * slot + 256 * draw(st.integers(0, 8)) for slot in slots[: len(SIZES)]),
        tuple(0x7F00_0000_0000 + (k << 24) for k in far[: len(SCRATCH)]),
    )


pointers = st.sampled_from(
    [*SIZES.items(), *((f"scratch:{k}", size) for k, size in enumerate(SCRATCH))]
).flatmap(lambda buffer: st.tuples(st.just(buffer[0]), st.integers(0, buffer[1])))
numbers = st.integers(0, 1 << 20).map(lambda value: struct.pack("<Q", value))
ARENA = 0x10_0000_0000


@given(st.lists(st.one_of(pointers, numbers), min_size=1, max_size=12), st.data())
@settings(max_examples=150, deadline=None)
def test_parameters_at_new_addresses_are_those_of_a_call_made_there(
    parameters: list[Parameter], data: st.DataObject
) -> None:
    before, after, now = (data.draw(wheres(arena)) for arena in (ARENA, ARENA, 2 * ARENA))
    tape = taped([([launch(parameters, at)], at) for at in (before, after)])
    again = Tape.from_json(tape.files()[TAPE])
    (step,) = steps(again)
    assert isinstance(step, KernelStep)
    # Scratch is numbered as the call comes to it; give each the place that it has now.
    seen = list(
        dict.fromkeys(p[0] for p in parameters if isinstance(p, tuple) and p[0].startswith("scratch:"))
    )
    addresses = {name: now.begin(name) for name in SIZES}
    addresses |= {f"scratch:{number}": now.begin(name) for number, name in enumerate(seen)}
    found = b"".join(_relocated(arg, addresses) for arg in step.args if isinstance(arg, Recorded))
    assert found.hex() == launch(parameters, now)["data"]


@given(st.lists(numbers, min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_a_word_that_moves_with_no_buffer_is_refused(given_numbers: list[bytes], data: st.DataObject) -> None:
    before, after = data.draw(wheres(ARENA)), data.draw(wheres(ARENA))
    at = data.draw(st.integers(0, len(given_numbers) - 1))
    other = list(given_numbers)
    other[at] = bytes([other[at][0] ^ 1]) + other[at][1:]
    with pytest.raises(Unreplayable, match=f"parameter {at} of kernel in step 1 changes"):
        taped([([launch(given_numbers, before)], before), ([launch(other, after)], after)])


HERE = Where(ARENA, (0, 8192, 16384), (1 << 40, 1 << 41))
THERE = Where(ARENA, (32768, 65536, 512), (1 << 42, 1 << 43))
HONEST: list[Parameter] = [("input:x", 0), ("output:y", 4096), ("scratch:0", 8), struct.pack("<Q", 77)]


def one(at: Where, **changes: Any) -> tuple[list[Json], Where]:
    return [launch(HONEST, at, **changes)], at


def test_two_calls_in_a_row_that_agree_are_enough() -> None:
    tape = taped([one(HERE, grid=[9, 1, 1]), one(THERE), one(HERE), one(THERE, grid=[9, 1, 1])])
    (step,) = steps(tape)
    assert isinstance(step, KernelStep)
    assert step.grid == (2, 1, 1)


def test_code_that_is_loaded_again_for_each_call_is_the_same_code() -> None:
    tape = Tape()
    told = recording([[launch(HONEST, HERE)], [launch(HONEST, THERE, image=4)]], ARENA)
    tape.add(Recording(ARENA, told.calls, {3: b"code", 4: b"code"}), [HERE.places(), THERE.places()], KEY)
    assert tape.images == [b"code"]


def test_a_call_of_other_sizes_or_numbers_is_not_replayed() -> None:
    tape = taped([one(HERE), one(THERE)])
    for axes, scalars in (({"n": 5}, {"eps": 1e-5}), ({"n": 4}, {"eps": 1e-6}), ({"n": 4}, {})):
        with pytest.raises(BadInput, match="no call with these sizes and numbers was recorded"):
            tape.resolve(axes, scalars)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"attributes": [[7, "01"]]}, "attribute 7"),
        ({"attributes": [[1, "00" * 8 + "01" + "00" * 7]]}, "attribute 1,"),
        ({"words": [[0, ARENA + 7000, ARENA, 1 << 24]]}, "outside of the call's own buffers"),
        ({"words": [[4, ARENA, ARENA, 1 << 24]]}, "is part of no parameter"),
        ({"words": [[0, 1 << 50, 1 << 50, MAX_SCRATCH_BYTES + 1]]}, "more than 8 GiB"),
        ({"grid": [1, 1]}, "recording is none"),
        ({"block": [1, 1, -1]}, "recording is none"),
        ({"smem": True}, "recording is none"),
        ({"image": 5}, "recording is none"),
        ({"symbol": "ff"}, "recording is none"),
        ({"kind": "fill"}, "recording is none"),
        ({"words": [[0, ARENA - 1, ARENA, 1 << 24]]}, "outside of the call's own buffers"),
        ({"words": [[0, (1 << 50) - 1, 1 << 50, 64]]}, "recording is none"),
    ],
)
def test_what_we_would_not_launch_is_refused(change: Json, reason: str) -> None:
    with pytest.raises(Unreplayable, match=reason):
        taped([one(HERE, **change), one(THERE, **change)])


def test_preferences_are_left_out_and_the_rest_of_a_launch_is_not() -> None:
    attributes = [
        [8, "05"],
        [14, "64"],
        [1, "00" * 32],
        [2, "01000000"],
        [4, "020000000100000001000000"],
        [6, "01"],
    ]
    (step,) = steps(taped([one(HERE, attributes=attributes), one(THERE, attributes=attributes)]))
    assert isinstance(step, KernelStep)
    assert (step.cooperative, step.cluster, step.pdl) == (True, (2, 1, 1), True)


def test_fills_and_copies_are_relocated() -> None:
    def told(at: Where) -> list[Json]:
        fill = {"kind": "fill", "stream": 1, "value": 65535, "width": 2, "count": 5}
        copy_ = {"kind": "copy", "stream": 0, "bytes": 12, "from": at.told("scratch:1", 16)}
        return [fill | {"to": at.told("scratch:1", 0)}, copy_ | {"to": at.told("output:y", 4)}]

    tape = taped([(told(HERE), HERE), (told(THERE), THERE)])
    assert list(steps(Tape.from_json(tape.files()[TAPE]))) == [
        MemsetStep("scratch:0", 0, 10, 65535, 2),
        CopyStep("output:y", 4, "scratch:0", 16, 12),
    ]


def written(told: Recording) -> bytes:
    head = {
        "arena": told.arena,
        "calls": told.calls,
        "images": [[n, len(code)] for n, code in told.images.items()],
    }
    return json.dumps(head).encode() + b"\n" + b"".join(told.images.values())


def test_a_recording_is_read_as_it_was_written() -> None:
    told = recording([[launch(HONEST, HERE)]], ARENA)
    assert read(written(told)) == told


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


def paths(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value within one."""
    items = (
        list(value.items())
        if isinstance(value, Mapping)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [at, *(path for key, inner in items for path in paths(inner, (*at, key)))]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_a_runner_writes_is_a_tape_or_refused(data: st.DataObject) -> None:
    calls = [{"marks": [], "steps": [launch(HONEST, at)]} for at in (HERE, THERE)]
    head: Any = copy.deepcopy({"arena": ARENA, "calls": calls, "images": [[3, 4]]})
    *way, last = data.draw(st.sampled_from(paths(head)[1:]))
    inner = head
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(junk)
    try:
        tape = Tape()
        tape.add(read(json.dumps(head).encode() + b"\ncode"), [HERE.places(), THERE.places()], KEY)
        Tape.from_json(tape.files()[TAPE])
    except Unreplayable as refused:
        assert str(refused).isprintable()


@pytest.mark.parametrize("data", [b"", b"\n", b"[]\n", b'{"arena": 1}\n', b"{" * 100_000, b"\xff\xfe\n"])
def test_a_file_that_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(Unreplayable):
        read(data)
