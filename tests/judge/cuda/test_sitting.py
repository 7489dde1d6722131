"""A GPU's sitting end to end: honest candidates pass, and each way to be wrong is called by its name."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from swarm.definition import DType
from swarm.judge import elements
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.sitting import CudaSitting, max_slots, private_bytes, shared_bytes
from swarm.judge.inputs import Scalar, Spread
from swarm.judge.reference import InvalidReference
from swarm.judge.sitting import Call
from swarm.judge.slots import Buffer
from swarm.languages.protocol import Failure
from swarm.problem import Problem, problem_from_files
from swarm.protocol import Tests, load_protocol
from swarm.verdict import Status
from swarm.workload import CustomInput
from tests.judge.cuda.conftest import Bench
from tests.suite.shipped import NAMES, shipped

ROOT = Path(__file__).parents[3]
TESTS: Tests = load_protocol((ROOT / "COORDINATION.md").read_text()).tests
Values = list[Any]
Function = Callable[..., Any]


def problem(
    reference: str, inputs: dict[str, Any], outputs: dict[str, Any], rows: int = 5, **more: Any
) -> Problem:
    """Return a problem over `rows` rows of 40, whose inputs are random unless `given` says otherwise."""
    given = more.pop("given", {})
    files = more.pop("files", {})
    scalars = {
        name: {"type": "scalar", "value": 0.5} for name, spec in inputs.items() if spec["shape"] is None
    }
    workload = {name: {"type": "random"} for name in inputs} | scalars | given
    definition = {
        "name": "one",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 40}},
        "inputs": inputs,
        "outputs": outputs,
        "reference": reference,
        **more,
    }
    line = {"uuid": "w", "axes": {"rows": rows}, "inputs": workload}
    return problem_from_files(
        {"definition.json": json.dumps(definition).encode(), "workload.jsonl": json.dumps(line).encode()}
        | files,
        "one",
    )


def tensor(dtype: str, *shape: str) -> dict[str, Any]:
    return {"shape": list(shape or ("rows", "width")), "dtype": dtype}


SCALE = problem(
    "import torch\ndef run(x, norm_weight, scale):\n"
    "    y = x.float() * norm_weight.float() * scale\n    return y.to(torch.bfloat16), y.sum(-1)\n",
    {
        "x": tensor("bfloat16"),
        "norm_weight": tensor("float32", "width"),
        "scale": {"shape": None, "dtype": "float32"},
    },
    {"y": tensor("bfloat16"), "total": tensor("float32", "rows")},
    given={"norm_weight": {"type": "random"}, "scale": {"type": "random"}},
)


class InProcess:
    """A reference that runs in this process, over memory that it copies from and to."""

    def __init__(self, bench: Bench, problem: Problem) -> None:
        self._bench = bench
        self._definition = problem.definition
        space: dict[str, Any] = {}
        exec(problem.definition.reference, space)
        self.run: Function = space["run"]
        self._make: Function | None = space.get(problem.definition.custom_inputs_entrypoint or "")
        self._arenas: dict[str, DeviceArena] = {}
        self.calls = 0
        self.spoils: Callable[[Values], None] = lambda inputs: None

    def map(self, name: str, arena: DeviceArena) -> None:
        self._arenas[name] = arena

    def read(self, arena: str, item: Buffer | Scalar) -> Any:
        if not isinstance(item, Buffer):
            return item
        shape = item.shape
        data = self._bench.read(self._arenas[arena].address + item.offset, shape.nbytes)
        flat = (
            torch.frombuffer(bytearray(data), dtype=elements.torch_dtype(shape.dtype))
            if data
            else torch.empty(0)
        )
        return flat.reshape(shape.stored)

    def write(self, arena: str, buffer: Buffer, values: torch.Tensor, *, compared: bool = False) -> None:
        dtype = buffer.shape.dtype
        flat = values.contiguous().flatten()
        flat = elements.comparable(flat, dtype) if compared else flat.to(elements.torch_dtype(dtype))
        data = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
        self._bench.write(self._arenas[arena].address + buffer.offset, data)

    def make_inputs(
        self, arena: str, axes: Mapping[str, Scalar], seed: int, inputs: Sequence[Buffer | None]
    ) -> dict[str, Scalar]:
        torch.manual_seed(seed)
        assert self._make is not None
        made = self._make(axes, torch.device("cpu"))
        for buffer in inputs:
            if buffer is not None:
                self.write(arena, buffer, made[buffer.shape.name])
        return {name: made[name] for name, spec in self._definition.inputs.items() if spec.is_scalar}

    def expect_each(
        self,
        inputs_in: str,
        outputs_in: str,
        work: Sequence[tuple[Sequence[Buffer | Scalar], Sequence[Buffer]]],
        name: str | None = None,
    ) -> float:
        for inputs, outputs in work:
            self.calls += 1
            values = [self.read(inputs_in, item) for item in inputs]
            results = self.run(*values)
            for buffer, result in zip(
                outputs, results if isinstance(results, tuple) else (results,), strict=True
            ):
                self.write(outputs_in, buffer, result, compared=True)
            self.spoils(list(inputs))
        return 1e-3 * len(work)


class Room:
    """A sitting at a problem's first workload, and an honest candidate."""

    def __init__(self, bench: Bench, problem: Problem, tests: Tests = TESTS, seed: str = "seed") -> None:
        workload = problem.workloads[0]
        self.bench = bench
        self.shared = bench.arena(shared_bytes(problem, workload))
        self.private = bench.arena(private_bytes(problem, workload))
        self.reference = InProcess(bench, problem)
        self.sitting = CudaSitting(
            *(problem, workload, tests, self.reference, self.shared, self.private, bench.kernels, seed),
            lambda: "",
        )

    def work(
        self, calls: Sequence[Call], change: Callable[[list[torch.Tensor]], None] = lambda outputs: None
    ) -> None:
        for call in calls:
            results = self.reference.run(*(self.reference.read("shared", item) for item in call.inputs))
            outputs = list(results if isinstance(results, tuple) else (results,))
            change(outputs)
            for buffer, value in zip(call.outputs, outputs, strict=True):
                self.reference.write("shared", buffer, value)

    def inspect(self, calls: Sequence[Call], *, fully: bool = True) -> Failure | None:
        return self.sitting.inspect(calls, [fully] * len(calls))

    def failure(self, calls: Sequence[Call], *, fully: bool = True) -> Failure:
        found = self.inspect(calls, fully=fully)
        assert found is not None
        return found

    def poke(self, buffer: Buffer, at: int) -> None:
        address = self.shared.address + buffer.offset + at
        self.bench.write(address, bytes([self.bench.read(address, 1)[0] ^ 1]))


def test_an_honest_candidate_passes_every_kind_of_call(bench: Bench) -> None:
    room = Room(bench, SCALE)
    seen = set()
    for count in (1, 3, room.sitting.max_slots):
        calls = room.sitting.fill(count)
        seen |= {call.draw.spread for call in calls}
        room.work(calls)
        assert room.inspect(calls) is None
    assert room.sitting.evidence.compared == 4 + room.sitting.max_slots
    assert seen == set(Spread) == room.sitting.evidence.seen
    assert room.sitting.evidence.max_abs_error == 0 and room.sitting.evidence.matched_ratio == 1


def test_slots_lie_apart_at_new_places_with_new_contents(bench: Bench) -> None:
    room = Room(bench, SCALE)
    places, contents, scalars = set(), set(), set()
    for _ in range(4):
        for call in room.sitting.fill(4):
            x = call.inputs[0]
            assert isinstance(x, Buffer) and x.offset % 256 == 0 and call.slot.inputs[0] == x.offset
            places.add(x.offset)
            contents.add(bench.read(room.shared.address + x.offset, x.shape.nbytes))
            scalars.add(call.slot.inputs[2])
    assert len(contents) == 16 and len(places) > 8 and len(scalars) == 16


def test_wrong_values_are_named_with_their_place(bench: Bench) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(2)
    room.work(calls)
    room.work(calls[1:], lambda outputs: outputs[1].__setitem__(3, outputs[1][3] + 100))
    failure = room.failure(calls)
    assert failure.status is Status.INCORRECT_NUMERICAL
    assert (
        "output total: 80 % of 5 elements match" in failure.reason and "the worst is at [3]" in failure.reason
    )
    assert f"(workload w: rows=5; {calls[1].draw.spread} inputs)" in failure.reason


def test_what_was_never_written_is_called_so(bench: Bench) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(1)
    assert (
        "output y: 200 of 200 elements were never written, the first at [0, 0]" in room.failure(calls).reason
    )
    room.work(calls)
    assert room.inspect(calls) is None
    room.sitting.renew(calls)
    assert "never written" in room.failure(calls, fully=False).reason


@pytest.mark.parametrize("fully", [True, False])
def test_writes_outside_and_to_inputs_are_seen_in_every_call(bench: Bench, fully: bool) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(2)
    room.work(calls)
    x, weight, _ = calls[1].inputs
    assert isinstance(x, Buffer) and isinstance(weight, Buffer)
    room.poke(weight, -3)
    failure = room.failure(calls, fully=fully)
    assert failure.status is Status.RUNTIME_ERROR
    assert "it wrote 3 bytes before the start of norm_weight" in failure.reason
    room.poke(weight, -3)
    room.poke(calls[0].outputs[1], calls[0].outputs[1].shape.nbytes + 8)
    assert "it wrote 9 bytes past the end of total" in room.failure(calls, fully=fully).reason
    room.poke(calls[0].outputs[1], calls[0].outputs[1].shape.nbytes + 8)
    room.poke(x, 77)
    failure = room.failure(calls, fully=fully)
    assert failure.status is Status.REWARD_HACK and "it changed its input x" in failure.reason


def test_a_renewed_request_needs_no_second_answer_of_the_reference(bench: Bench) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(3)
    room.work(calls)
    assert room.inspect(calls) is None
    room.sitting.renew(calls)
    room.work(calls)
    assert room.inspect(calls) is None
    assert room.reference.calls == 3 and room.sitting.evidence.compared == 6


def test_calls_that_are_not_compared_cost_no_reference_unless_they_look_strange(bench: Bench) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(3)
    room.work(calls, lambda outputs: outputs[0].add_(1))
    assert room.inspect(calls, fully=False) is None and room.reference.calls == 0
    room.work(calls[2:], lambda outputs: outputs[0].view(-1).__setitem__(7, float("inf")))
    failure = room.failure(calls, fully=False)
    assert room.reference.calls == 1 and "output y: inf at [0, 7]" in failure.reason


def test_a_slow_reference_is_asked_about_some_calls(bench: Bench) -> None:
    room = Room(bench, SCALE, replace_tests(slow_reference_ms=0.5))
    done, compared = 0, 0
    for _ in range(20):
        calls = room.sitting.fill(5)
        room.work(calls)
        fully = [room.sitting.wants_comparison(call, done + n, 101) for n, call in enumerate(calls, 1)]
        assert room.sitting.inspect(calls, fully) is None
        done, compared = done + 5, compared + sum(fully)
    assert room.sitting.evidence.compared == compared
    assert TESTS.rounds <= compared < 60


def replace_tests(**changes: Any) -> Tests:
    return TESTS.model_copy(update=changes)


def test_a_reference_that_changes_its_inputs_or_is_not_finite_is_invalid(bench: Bench) -> None:
    room = Room(bench, SCALE)
    calls = room.sitting.fill(1)
    room.work(calls)
    room.reference.spoils = lambda inputs: room.poke(inputs[1], 0)
    with pytest.raises(InvalidReference, match="the reference changes its input norm_weight"):
        room.inspect(calls)
    bad = problem("def run(x):\n    return x / 0\n", {"x": tensor("float32")}, {"y": tensor("float32")})
    room = Room(bench, bad)
    calls = room.sitting.fill(1)
    room.reference.write("shared", calls[0].outputs[0], torch.ones(5, 40))
    with pytest.raises(InvalidReference, match=r"the reference returned .* in output y"):
        room.inspect(calls)


def test_inputs_of_the_problems_own_code_are_kept_track_of(bench: Bench) -> None:
    custom = problem(
        "import torch\ndef run(x, index, scale):\n    return x[index.long()] * scale\n"
        "def make(axes, device):\n    n = axes['rows']\n"
        "    return {'x': torch.randn(n, 40), 'index': torch.randperm(n).int(), 'scale': 2.5}\n",
        {
            "x": tensor("float32"),
            "index": tensor("int32", "rows"),
            "scale": {"shape": None, "dtype": "float32"},
        },
        {"y": tensor("float32")},
        custom_inputs_entrypoint="make",
        given={name: {"type": "custom"} for name in ("x", "index", "scale")},
    )
    assert all(isinstance(item, CustomInput) for item in custom.workloads[0].inputs.values())
    room = Room(bench, custom)
    calls = room.sitting.fill(3)
    assert {call.slot.inputs[2] for call in calls} == {2.5}
    assert len({bench.read(room.shared.address + call.inputs[0].offset, 64) for call in calls}) == 3  # type: ignore[union-attr]
    room.work(calls)
    assert room.inspect(calls) is None
    index = calls[2].inputs[1]
    assert isinstance(index, Buffer)
    room.poke(index, 3)
    failure = room.failure(calls)
    assert failure.status is Status.REWARD_HACK and "it changed its input index" in failure.reason


def test_a_file_is_an_input_like_any_other(bench: Bench) -> None:
    data = torch.arange(200, dtype=torch.float32)
    header = json.dumps({"t": {"dtype": "F32", "shape": [5, 40], "data_offsets": [0, 800]}}).encode()
    stored = struct.pack("<Q", len(header)) + header + data.numpy().tobytes()
    from_file = problem(
        "def run(x, attention_weights):\n    return x + attention_weights\n",
        {"x": tensor("float32"), "attention_weights": tensor("float32")},
        {"y": tensor("float32")},
        given={"x": {"type": "safetensors", "path": "t.safetensors", "tensor_key": "t"}},
        files={"t.safetensors": stored},
    )
    room = Room(bench, from_file)
    calls = room.sitting.fill(2)
    x, weights = calls[1].inputs
    assert torch.equal(room.reference.read("shared", x).flatten(), data)
    assert torch.allclose(room.reference.read("shared", weights).sum(-1), torch.ones(5))
    room.work(calls)
    assert room.inspect(calls) is None
    assert isinstance(x, Buffer)
    room.poke(x, 4)
    assert "it changed its input x" in room.failure(calls).reason


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_packed], ids=str)
def test_every_dtype_goes_in_and_out(bench: Bench, dtype: DType) -> None:
    copied = problem("def run(x):\n    return x\n", {"x": tensor(dtype)}, {"y": tensor(dtype)})
    room = Room(bench, copied, replace_tests(atol=0.0, required_matched_ratio=1.0))
    calls = room.sitting.fill(5)
    room.work(calls)
    assert room.inspect(calls) is None
    room.poke(calls[4].outputs[0], calls[4].outputs[0].shape.nbytes - 1)
    assert room.failure(calls).status is Status.INCORRECT_NUMERICAL


def test_packed_float4_and_tensors_without_dimensions(bench: Bench) -> None:
    packed = problem(
        "def run(x, s):\n    return x, s * 2\n",
        {"x": tensor("float4_e2m1"), "s": {"shape": [], "dtype": "float32"}},
        {"y": tensor("float4_e2m1"), "t": {"shape": [], "dtype": "float32"}},
    )
    room = Room(bench, packed)
    calls = room.sitting.fill(2)
    room.work(calls)
    assert room.inspect(calls) is None
    assert isinstance(calls[0].inputs[1], Buffer)


def test_an_empty_tensor_is_no_trouble(bench: Bench) -> None:
    empty = problem("def run(x):\n    return x\n", {"x": tensor("float32")}, {"y": tensor("float32")}, rows=0)
    room = Room(bench, empty)
    calls = room.sitting.fill(2)
    assert room.inspect(calls) is None
    room.poke(calls[0].outputs[0], 0)
    assert "1 bytes past the end of y" in room.failure(calls).reason


def test_the_secret_seed_decides_everything(bench: Bench) -> None:
    def first(seed: str) -> bytes:
        room = Room(bench, SCALE, seed=seed)
        (call,) = room.sitting.fill(1)
        assert isinstance(call.inputs[0], Buffer)
        return bench.read(room.shared.address + call.inputs[0].offset, 400)

    assert first("a") == first("a") != first("b")


@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_the_problems_that_ship(name: str) -> None:
    problem = shipped(name)
    for workload in problem.workloads:
        slots = max_slots(problem, workload)
        once = sum(
            problem.definition.nbytes(name, problem.definition.resolve(workload))
            for name in (*problem.definition.inputs, *problem.definition.outputs)
        )
        assert slots * once <= shared_bytes(problem, workload) <= slots * (2 * once + (1 << 20)) + (1 << 21)
        assert private_bytes(problem, workload) < slots * 20 * once + (64 << 20)
