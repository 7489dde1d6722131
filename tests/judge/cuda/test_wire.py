"""The words between a judge and a runner: what is written is what is read, and nothing else is believed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from swarm.judge.cuda.artifacts import content, layout_of
from swarm.judge.cuda.wire import (
    NONCE_BYTES,
    Claim,
    Clock,
    Layout,
    Request,
    pack_claims,
    pack_load,
    unpack_claims,
    unpack_load,
)
from swarm.judge.runner import Slot
from swarm.problem import Problem, problem_from_files

NONCE = bytes(range(NONCE_BYTES))
CLAIMS = [Claim(1234, 4321, 56_000, 3, 2**63 - 1, 132, False), Claim(1, 0, 0, -1, 0, 0, True)]


def problem() -> Problem:
    return problem_from_files(
        {
            "definition.json": b"""{"name": "mixed", "axes": {"n": {"type": "var"},
              "twice": {"type": "expr", "expression": "n * 2"}, "h": {"type": "const", "value": 64}},
              "inputs": {"x": {"shape": ["n", "h"], "dtype": "bfloat16"},
                         "scale": {"shape": null, "dtype": "float32"},
                         "count": {"shape": null, "dtype": "int64"},
                         "flag": {"shape": null, "dtype": "bool"},
                         "one": {"shape": [], "dtype": "float32"}},
              "outputs": {"y": {"shape": ["twice", "8"], "dtype": "float4_e2m1"}},
              "reference": "def run(x, scale, count, flag, one):\\n    return x\\n"}""",
            "workload.jsonl": b'{"uuid": "w", "axes": {"n": 4}, "inputs": {"x": {"type": "random"},'
            b'"scale": {"type": "scalar", "value": 1.5}, "count": {"type": "scalar", "value": 3},'
            b'"flag": {"type": "scalar", "value": true}, "one": {"type": "random"}}}\n',
        },
        "mixed",
    )


def test_a_slot_is_read_as_it_was_written() -> None:
    layout = layout_of(problem())
    slot = Slot((256, -1.5, -(2**62), True, 1024), (4096,), {"n": 4, "twice": 8})
    packed = layout.pack((*slot.inputs, *slot.outputs), slot.axes)
    assert len(packed) == layout.slot_bytes
    arguments, axes = layout.unpack(packed)
    assert arguments == [256, -1.5, -(2**62), 1, 1024, 4096]
    assert axes == {"n": 4, "twice": 8, "h": 64}


def test_a_layout_survives_json() -> None:
    layout = layout_of(problem())
    copy = Layout.from_json(layout.to_json())
    assert copy == layout
    assert copy.shape(0, {"n": 4}) == (4, 64)
    assert copy.shapes[1] is None
    assert copy.shape(5, {"twice": 8}) == (8, 8)


def test_a_request_is_read_as_it_was_written() -> None:
    slots = (b"a" * 24, b"b" * 24, b"c" * 24)
    request = Request(NONCE, Clock.CUPTI, 2**40, True, slots, 1)
    assert Request.unpack(request.pack()) == request


def test_claims_are_read_as_they_were_written() -> None:
    assert unpack_claims(pack_claims(NONCE, CLAIMS), NONCE, 2) == CLAIMS


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"c",
        pack_claims(bytes(NONCE_BYTES), CLAIMS),
        pack_claims(NONCE, CLAIMS[:1]),
        pack_claims(NONCE, CLAIMS) + b"x",
        b"!" + NONCE,
    ],
)
def test_claims_that_do_not_answer_the_request_are_none(forged: bytes) -> None:
    assert unpack_claims(forged, NONCE, 2) is None


def test_what_is_loaded_arrives_whole() -> None:
    head, files = (
        {"kind": "plan", "memory_bytes": 1 << 40},
        {"a/b.py": b"\0\xff" * 1000, "empty": b"", "c": b"L"},
    )
    assert unpack_load(pack_load(head, files)) == (head, files)


def test_an_artifact_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_bytes(b"a")
    (tmp_path / "b.cubin").write_bytes(b"b")
    assert content(tmp_path) == {"b.cubin": b"b", "sub/a.py": b"a"}
    assert content(tmp_path / "b.cubin") == {"b.cubin": b"b"}


def test_a_scalar_out_of_range_is_an_error() -> None:
    with pytest.raises(struct.error):
        layout_of(problem()).pack((0, 0.0, 2**63, False, 0, 0), {"n": 1, "twice": 2})
