"""What the judge makes of a runner's recordings, from a runner that writes what it is told to."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.errors import Refused
from swarm.judge.arena import place
from swarm.judge.build import Built
from swarm.judge.cuda import replay
from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.desk import CudaTable
from swarm.judge.cuda.replay import RecordingRunner, artifact_of, record
from swarm.judge.cuda.replay_tape import Tape, Unreplayable
from swarm.judge.cuda.wire import FAILED, READY, RECORD, Clock, Request, unpack_load
from swarm.judge.inputs import Draw
from swarm.judge.runner import Slot
from swarm.judge.sitting import Call
from swarm.judge.slots import GUARD_BYTES, Buffer, shapes
from swarm.languages.protocol import Artifact, Failure, Kind
from swarm.languages.steps import KernelStep
from swarm.problem import problem_from_files
from swarm.verdict import Status
from tests.judge.cuda import emulated
from tests.judge.cuda.emulated_session import LAYOUT, SLOT_BYTES, Bench, N
from tests.judge.cuda.replay.test_replay_tape import recording, written

PROBLEM = problem_from_files(
    {
        "definition.json": b"""{"name": "scale",
          "axes": {"n": {"type": "var"}, "m": {"type": "const", "value": 8}},
          "inputs": {"x": {"shape": ["n"], "dtype": "float32"}, "by": {"shape": null, "dtype": "float32"},
                     "flag": {"shape": null, "dtype": "bool"}},
          "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
          "reference": "def run(x, by, flag):\\n    return x * by\\n"}""",
        "workload.jsonl": b'{"uuid": "w", "axes": {"n": 16}, "inputs": {"x": {"type": "random"},'
        b'"by": {"type": "scalar", "value": 0.1}, "flag": {"type": "scalar", "value": true}}}\n',
    },
    "scale",
)
ARENA, ARENA_BYTES = 0x10_0000_0000, 1 << 18
Written = Callable[[Request, list[tuple[int, int]]], bytes]


class Sitting:
    """Slots of the problem at places of chance, at most so many in a request."""

    def __init__(self, max_slots: int, by: Callable[[int], float] = lambda number: 0.1) -> None:
        self.max_slots = max_slots
        self.calls: list[Call] = []
        self._by = by
        self._rng = random.Random(1)
        self._in, self._out = shapes(PROBLEM.definition, {"n": 16, "m": 8})

    def fill(self, count: int) -> list[Call]:
        assert count <= self.max_slots
        made = []
        at = iter(place([64, 64] * count, ARENA_BYTES, GUARD_BYTES, self._rng))
        for _ in range(count):
            assert self._in[0] is not None
            x, y = Buffer(self._in[0], next(at)), Buffer(self._out[0], next(at))
            by = self._by(len(self.calls) + len(made))
            slot = Slot((x.offset, by, True), (y.offset,), {"n": 16})
            draw = Draw.__new__(Draw)
            made.append(Call(draw, (x, by, True), (y,), (0,), slot))
        self.calls += made
        return made


class Runner:
    """The other end of a runner."""

    def __init__(self, write: Written, answer: bytes = READY) -> None:
        self.requests: list[int] = []
        self.pid, self.log = None, "what it printed"
        self._write = write
        self._answer = answer
        self._next = READY

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> Failure | None:
        if not data.startswith(RECORD):
            unpack_load(data)
            return None
        request = Request.unpack(data)
        places = [(x, y) for x, _, _, y, _ in (struct.unpack("<qdqqq", words) for words in request.slots)]
        self.requests.append(len(places))
        os.write(fds[0], self._write(request, places))
        is_ready = self._answer == READY
        self._next = READY if is_ready else self._answer[:1] + request.nonce + self._answer[1:]
        return None

    def receive(self, limit_s: float, *, waits_s: float = 0.0) -> bytes | Failure:
        return self._next

    def signal(self, number: int) -> None: ...

    def close(self) -> None: ...


def honest(request: Request, places: list[tuple[int, int]]) -> bytes:
    """Write a launch with both tensors of each slot."""
    calls = []
    for x, y in places:
        step = {"kind": "launch", "stream": 0, "image": 3, "symbol": b"scale".hex(), "grid": [1, 1, 1]}
        step |= {"block": [32, 1, 1], "smem": 0, "attributes": [], "parameters": [[0, 8], [8, 8]], "maps": []}
        words = [[at, ARENA + to, ARENA, ARENA_BYTES] for at, to in ((0, x), (8, y))]
        calls.append([step | {"data": struct.pack("<2Q", ARENA + x, ARENA + y).hex(), "words": words}])
    return written(recording(calls, ARENA))


def runner(other: Runner, kind: Kind = Kind.PYTHON) -> RecordingRunner:
    return RecordingRunner(
        Artifact(kind, Path(__file__), "run"),
        PROBLEM,
        SimpleNamespace(fd=0, size=ARENA_BYTES),  # type: ignore[arg-type]
        SimpleNamespace(wait_for=lambda process: None, offset_ns=0.0),  # type: ignore[arg-type]
        Clocks(),
        memory_bytes=1 << 30,
        timeout_s=10,
        side=None,
        process=other,  # type: ignore[arg-type]
    )


def taped(write: Written, sitting: Sitting | None = None, answer: bytes = READY) -> Tape:
    other = Runner(write, answer)
    return record(runner(other), PROBLEM, [sitting or Sitting(16)])  # type: ignore[list-item]


@pytest.mark.parametrize(("max_slots", "requests"), [(16, [4]), (3, [3, 1]), (1, [1, 1, 1, 1])])
def test_calls_are_recorded_in_as_many_requests_as_there_is_room_for(
    max_slots: int, requests: list[int]
) -> None:
    other = Runner(honest)
    tape = record(runner(other), PROBLEM, [Sitting(max_slots)])  # type: ignore[list-item]
    assert other.requests == requests
    (step,) = tape.resolve({"n": 16, "m": 8}, {"by": 0.1, "flag": True}).steps
    assert isinstance(step, KernelStep)
    assert [arg.words for arg in step.args] == [((0, "input:x", 0),), ((0, "output:y", 0),)]  # type: ignore[union-attr]


def test_a_tape_is_laid_out_as_a_plan_for_a_runner(tmp_path: Path) -> None:
    artifact = artifact_of(taped(honest), tmp_path)
    assert artifact.kind is Kind.PLAN
    assert {path.name for path in artifact.path.iterdir()} == {"tape.json", "kernels.json", "0.cubin"}
    (kernel,) = artifact.kernels
    assert (kernel.symbol, kernel.parameters) == ("scale", ((0, 8), (8, 8)))


def test_numbers_that_differ_from_call_to_call_are_refused() -> None:
    with pytest.raises(Unreplayable, match="its numbers are drawn anew for every call"):
        taped(honest, Sitting(16, float))


def test_what_a_candidate_raises_while_it_is_recorded_is_told() -> None:
    with pytest.raises(Unreplayable, match="it could not be recorded: RUNTIME_ERROR: no kernel"):
        taped(honest, answer=FAILED + b"no kernel")


def test_a_forged_answer_is_no_recording() -> None:
    with pytest.raises(Unreplayable, match="it could not be recorded: REWARD_HACK"):
        taped(honest, answer=b"xnot the runner")


def test_a_recording_may_not_be_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_BYTES", 1000)
    with pytest.raises(Unreplayable, match="its recording has more than"):
        taped(lambda request, places: b"{" * 1001)


def test_calls_that_are_missing_are_missed() -> None:
    with pytest.raises(Unreplayable, match="3 of 4 calls were recorded"):
        taped(lambda request, places: honest(request, places[1:]))


def test_a_runner_that_failed_stays_so() -> None:
    it = runner(Runner(honest, FAILED + b"no kernel"))
    (call,) = Sitting(1).fill(1)
    for _ in range(2):
        told = it.record([call.slot])
        assert isinstance(told, Failure)
        assert told.status is Status.RUNTIME_ERROR


def test_the_shim_is_built_once(cache: Path) -> None:
    first = replay.shim(cache)
    changed = first.stat().st_mtime_ns
    assert replay.shim(cache) == first
    assert first.stat().st_mtime_ns == changed


class Recorder:
    """What stands for the shim in a session: it only calls, and says when."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen
        self.wrote: list[Any] = []

    def record(self, arena: int, nbytes: int, work: Callable[[], None]) -> dict[str, Any]:
        self.seen.append("on")
        work()
        self.seen.append("off")
        return {"steps": [], "arena": arena, "nbytes": nbytes}

    def write(self, fd: int, arena: int, calls: list[dict[str, Any]]) -> None:
        self.wrote = [fd, arena, calls]


def test_a_session_records_calls_that_are_warm_one_at_a_time(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.install(monkeypatch, library)
    bench = Bench(monkeypatch)
    seen: list[str] = []

    def work(bench: Bench, slot: int, slots: list[int]) -> None:
        seen.append(f"call {slot}")
        bench.device.later.append(lambda: seen.append("waited for"))

    made = bench.session("python", work)
    bench.request(made, 1)
    made._arena.size = ARENA_BYTES
    seen.clear()
    bench.slots = [0, SLOT_BYTES]
    words = tuple(LAYOUT.pack((slot, slot + SLOT_BYTES // 2), {"n": N}) for slot in bench.slots)
    recorder = Recorder(seen)
    made.record(Request(bytes(8), Clock.EVENTS, 0, True, words), recorder, 7)  # type: ignore[arg-type]
    emulated.uninstall()
    warm, other = ["call 0", "waited for"], f"call {SLOT_BYTES}"
    assert seen == [*warm, *warm, "on", "call 0", "off", "waited for", "on", other, "off", "waited for"]
    fd, arena, calls = recorder.wrote
    assert (fd, arena, len(calls)) == (7, bench.base, 2)
    assert all(call["arena"] == bench.base and call["nbytes"] == ARENA_BYTES for call in calls)


def table(cache: Path, process: Callable[[], Any]) -> CudaTable:
    """Return a table whose runners that record are what `process` makes."""
    desk: Any = SimpleNamespace(
        cache=cache,
        spares=SimpleNamespace(
            recorder=lambda host, shim: process(), wait_for=lambda process: None, offset_ns=0.0
        ),
        health=SimpleNamespace(wait_until_gone=lambda pid: None),
    )
    rules: Any = SimpleNamespace(
        problem=PROBLEM,
        protocol=SimpleNamespace(
            rules=SimpleNamespace(memory_gib=1, run_timeout_s=10), tests=SimpleNamespace(flush="clean")
        ),
    )
    arena: Any = SimpleNamespace(fd=0, size=ARENA_BYTES)
    return CudaTable(desk, rules, None, (arena, arena), "seed")  # type: ignore[arg-type]


def built(kind: Kind, **more: bool) -> Built:
    return Built(None, Artifact(kind, Path(__file__), "run", **more))  # type: ignore[arg-type]


def test_a_replay_is_a_plan_in_its_trees_place(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaTable, "sitting", lambda self, workload: Sitting(16))
    tree = built(Kind.PYTHON)
    found = table(cache, lambda: Runner(honest)).replay(tree, PROBLEM.workloads)
    assert isinstance(found, Built)
    assert found.artifact.kind is Kind.PLAN
    assert found.replay_of is tree


def test_where_nothing_is_to_be_replayed_there_is_no_reason(cache: Path) -> None:
    def never() -> Runner:
        raise AssertionError("nothing is started")

    there = table(cache, never)
    assert there.replay(built(Kind.PLAN), PROBLEM.workloads) == ""
    reason = there.replay(built(Kind.PYTHON, returns_outputs=True), PROBLEM.workloads)
    assert reason == "it returns its outputs, and they are copied outside of its time"


def test_a_runner_that_cannot_record_is_a_reason_and_no_fault(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Runner:
        raise Refused("a runner did not start")

    monkeypatch.setattr(CudaTable, "sitting", lambda self, workload: Sitting(16))
    assert table(cache, none).replay(built(Kind.PYTHON), PROBLEM.workloads) == "a runner did not start"
    silent = table(cache, lambda: Runner(honest, FAILED + b"no kernel"))
    reason = silent.replay(built(Kind.SHARED_OBJECT), PROBLEM.workloads)
    assert reason == "it could not be recorded: RUNTIME_ERROR: no kernel"
