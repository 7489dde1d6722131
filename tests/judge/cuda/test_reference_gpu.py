"""The reference on a real GPU: it sees the judge's memory, and computes where no candidate can look."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from swarm.definition import Definition, DType, parse_definition
from swarm.judge.cuda.devices import cuda_devices
from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.health import Health
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.reference import CudaReferences
from swarm.judge.reference import InvalidReference, Reference
from swarm.judge.slots import Buffer, Shape

pytestmark = pytest.mark.gpu

SOURCE = """
import torch

def run(x, scale):
    if scale < 0:
        raise ValueError("negative")
    return x.float().mul(scale).to(torch.bfloat16), x.sum(), x > 1

def inputs(axes, device):
    return {"x": torch.full((axes["n"],), 2.0, device=device, dtype=torch.float16), "scale": 3.0}
"""


def definition() -> Definition:
    import json

    text = json.dumps(
        {
            "name": "scaled",
            "axes": {"n": {"type": "var"}},
            "inputs": {
                "x": {"shape": ["n"], "dtype": "float16"},
                "scale": {"shape": None, "dtype": "float32"},
            },
            "outputs": {
                "y": {"shape": ["n"], "dtype": "bfloat16"},
                "total": {"shape": [], "dtype": "float16"},
                "large": {"shape": ["n"], "dtype": "bool"},
            },
            "reference": SOURCE,
            "custom_inputs_entrypoint": "inputs",
        }
    )
    return parse_definition(text.encode(), "definition.json")


class Place:
    def __init__(self) -> None:
        self.device = cuda_devices()[0]
        self.context = Context(self.device.uuid)
        self.stream = Stream()
        self.shared = DeviceArena(self.context, 1 << 20)
        self.private = DeviceArena(self.context, 1 << 20)
        self.x = Buffer(Shape("x", DType.FLOAT16, (4,)), 512)
        self.outputs = [
            Buffer(Shape("y", DType.BFLOAT16, (4,)), 0),
            Buffer(Shape("total", DType.FLOAT16, ()), 256),
            Buffer(Shape("large", DType.BOOL, (4,)), 512),
        ]


@pytest.fixture(scope="module")
def place() -> Place:
    return Place()


@pytest.fixture(scope="module")
def reference(place: Place) -> Iterator[Reference]:
    with CudaReferences(place.device) as references:
        one = references.get("epoch", "scaled", definition(), False)
        one.map("shared", place.shared)
        one.map("private", place.private)
        yield one


def test_reference_reads_the_shared_arena_and_writes_the_private_one(
    place: Place, reference: Reference
) -> None:
    place.stream.write(place.shared.address + 512, struct.pack("<4e", 0.5, 1.0, 1.5, 2.0))
    reference.expect_each("shared", "private", [((place.x, 2.0), place.outputs)])
    assert struct.unpack("<4f", place.stream.read(place.private.address, 16)) == (1.0, 2.0, 3.0, 4.0)
    assert struct.unpack("<f", place.stream.read(place.private.address + 256, 4)) == (5.0,)
    assert struct.unpack("<4q", place.stream.read(place.private.address + 512, 32)) == (0, 0, 1, 1)


def test_the_fast_reference_answers_on_the_gpu_too(place: Place) -> None:
    fast = SOURCE.replace("mul(scale)", "mul(2 * scale)")
    with CudaReferences(place.device) as references:
        one = references.get("fast", "scaled", definition(), False, fast)
        one.map("shared", place.shared)
        one.map("private", place.private)
        place.stream.write(place.shared.address + 512, struct.pack("<4e", 0.5, 1.0, 1.5, 2.0))
        one.expect_each("shared", "private", [((place.x, 2.0), place.outputs)])
        assert struct.unpack("<4f", place.stream.read(place.private.address, 16)) == (2.0, 4.0, 6.0, 8.0)


def test_own_inputs_are_made_on_the_gpu(place: Place, reference: Reference) -> None:
    scalars = reference.make_inputs("shared", {"n": 4}, 1, [place.x, None])
    assert scalars == {"scale": 3.0}
    assert struct.unpack("<4e", place.stream.read(place.shared.address + 512, 8)) == (2.0,) * 4


def test_reference_that_raises_is_the_problems_fault(place: Place, reference: Reference) -> None:
    with pytest.raises(InvalidReference, match="negative"):
        reference.expect_each("shared", "private", [((place.x, -1.0), place.outputs)])


def test_reference_that_needs_more_memory_than_there_is_says_so(place: Place) -> None:
    source = "import torch\ndef run(x, scale):\n    return torch.empty(1 << 42, device='cuda')\n"
    greedy = definition().model_copy(update={"reference": source, "custom_inputs_entrypoint": None})
    with CudaReferences(place.device) as references:
        one = references.get("epoch", "greedy", greedy, False)
        one.map("shared", place.shared)
        with pytest.raises(InvalidReference, match="out of memory"):
            one.expect_each("shared", "shared", [((place.x, 1.0), place.outputs)])


def test_health_tells_clocks_power_and_temperature(place: Place) -> None:
    health = Health(place.device)
    health.check()
    facts = health.facts()
    assert int(facts["sm_clock_mhz"]) > 100 and int(facts["temperature_c"]) > 0
    assert isinstance(health.throttled(), str) and health.driver
