"""Verify by replay: what a candidate with code on the host has the GPU do, done again without that code.

A runner that nothing is timed in records the launches of some calls; our own launcher then makes them on the
judge's buffers, in a runner that holds nothing of the candidate's but its kernels. It is checked and timed as
a plan is: a recording that leaves work out fails, and the time that a candidate claimed no longer counts.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from swarm.errors import Refused
from swarm.judge.cuda.artifacts import layout_of
from swarm.judge.cuda.replay_tape import Key, Place, Recording, Tape, Unreplayable, joined, key_of, read
from swarm.judge.cuda.runner import FIRST_CALL_S, CudaRunner
from swarm.judge.cuda.sitting import CudaSitting
from swarm.judge.cuda.wire import NONCE_BYTES, READY, RECORD, Clock, Request
from swarm.judge.runner import Slot
from swarm.judge.sitting import Call
from swarm.judge.slots import Buffer
from swarm.languages import toolchain
from swarm.languages.cuda import KERNELS
from swarm.languages.kept import keep
from swarm.languages.nvrtc import info_to_json
from swarm.languages.protocol import Artifact, Failure, KernelInfo, Kind
from swarm.problem import Problem

RECORDED = 4
"""Calls of a workload: two that follow each other must be the same but for their addresses."""
MAX_BYTES = 64 << 20
"""Of a recording, code included."""
FOLDER = Path(__file__).parent
SHIM, HEADERS = "replay_shim.cpp", ("replay_notes.h", "replay_abi.h")
EXPORTS = "exports.map"
EXPORTED = b"{ global: cu*; dlsym; swarm_record_*; local: *; };\n"
FLAGS = (
    "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-ldl",
    "-static-libstdc++", "-static-libgcc", f"-Wl,--version-script={EXPORTS}",
)  # fmt: skip
"""With a C++ library of its own, for it is loaded before everything else."""
BUILD_S, BUILD_BYTES = 120.0, 4 << 30


def shim(cache: Path) -> Path:
    """Build what is preloaded into a runner that records, unless `cache` has it."""
    files = {name: (FOLDER / name).read_bytes() for name in (SHIM, *HEADERS)} | {EXPORTS: EXPORTED}
    cores = sorted(os.sched_getaffinity(0))
    built = toolchain.build(files, FLAGS, cache, timeout_s=BUILD_S, memory_bytes=BUILD_BYTES, cores=cores)
    if isinstance(built, toolchain.NotBuilt):
        raise Refused(f"the compiler failed on our own {SHIM}: {built.exit}: {built.log[-400:]}")
    return built.path


class RecordingRunner(CudaRunner):
    """A runner with the shim in its process; it is asked for recordings instead of times."""

    def record(self, slots: Sequence[Slot]) -> Recording | Failure:
        """Have the candidate called once for each slot; return what it says that the GPU did."""
        if failure := self.ready():
            return failure
        packed = tuple(self._layout.pack((*slot.inputs, *slot.outputs), slot.axes) for slot in slots)
        request = Request(secrets.token_bytes(NONCE_BYTES), Clock.EVENTS, 0, True, packed, self._place)
        fd = os.memfd_create("swarm-recording", os.MFD_CLOEXEC)
        try:
            self._continue()
            failed = self._process.send(RECORD + request.pack()[1:], (fd,))
            answer = failed or self._process.receive(self._timeout_s, waits_s=FIRST_CALL_S[self._host])
            if isinstance(answer, Failure):
                self._failure = answer
                return answer
            self._stop()
            if answer != READY:
                self._failure = self._told(answer, request.nonce)
                return self._failure
            if os.fstat(fd).st_size > MAX_BYTES:
                raise Unreplayable(f"its recording has more than {MAX_BYTES >> 20} MiB")
            return read(os.pread(fd, MAX_BYTES, 0))
        finally:
            os.close(fd)


def record(runner: RecordingRunner, problem: Problem, sittings: Sequence[CudaSitting]) -> Tape:
    """Return the calls of all workloads, each recorded on contents of its own; Unreplayable says why not."""
    tape = Tape()
    for sitting in sittings:
        calls: list[Call] = []
        parts = []
        while len(calls) < RECORDED:
            filled = sitting.fill(min(RECORDED - len(calls), sitting.max_slots))
            found = runner.record([call.slot for call in filled])
            if isinstance(found, Failure):
                raise Unreplayable(f"it could not be recorded: {found.status}: {found.reason}")
            calls += filled
            parts.append(found)
        keys = {_key(problem, call) for call in calls}
        if len(keys) > 1:
            raise Unreplayable("its numbers are drawn anew for every call")
        tape.add(joined(parts), [_places(problem, call) for call in calls], keys.pop())
    return tape


def artifact_of(tape: Tape, cache: Path) -> Artifact:
    """Lay a tape out as a plan that a runner loads."""
    kernels = tuple(
        KernelInfo(symbol, symbol, image, 0, 0, 0, 0, 0, parameters)
        for (image, symbol), parameters in tape.parameters.items()
    )
    files = tape.files() | {KERNELS: json.dumps([info_to_json(one) for one in kernels]).encode()}
    return Artifact(Kind.PLAN, keep(files, cache / "replays"), "", kernels=kernels)


def _places(problem: Problem, call: Call) -> list[Place]:
    names = [f"input:{name}" for name in problem.definition.inputs]
    names += [f"output:{name}" for name in problem.definition.outputs]
    both = zip(names, (*call.inputs, *call.outputs), strict=True)
    return [Place(name, item.offset, item.shape.nbytes) for name, item in both if isinstance(item, Buffer)]


def _key(problem: Problem, call: Call) -> Key:
    """Return what a runner will know the call by: its sizes, and its numbers as a runner gets them."""
    layout = layout_of(problem)
    packed = layout.pack((*call.slot.inputs, *call.slot.outputs), call.slot.axes)
    arguments, axes = layout.unpack(packed)
    scalars = {
        name: bool(value) if dtype == "bool" else value
        for name, dtype, shape, value in zip(
            layout.names, layout.dtypes, layout.shapes, arguments, strict=True
        )
        if shape is None
    }
    return key_of(axes, scalars)
