"""The judge's end of a runner: the sandboxed process that executes one candidate.

A call is a list of slots; the answer is the nanoseconds the runner claims for each, or how it failed. The
claims are all that is taken from it: what it computed is in the arena, for the judge to check. Between
calls the runner is stopped, so that it can neither finish late nor disturb another runner; for the same
reason it must be alone in its box.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm import sandbox
from swarm.definition import Definition, TensorSpec
from swarm.device import Device
from swarm.errors import Refused
from swarm.judge import tasks
from swarm.judge.arena import Arena
from swarm.judge.runner_main import FAILED, HELLO, READY, WORD
from swarm.languages.native import Native
from swarm.languages.protocol import Artifact, Failure, Kind
from swarm.problem import Problem
from swarm.verdict import Status

MAIN = Path(__file__).with_name("runner_main.py")
START_S = {Kind.SHARED_OBJECT: 20.0, Kind.PYTHON: 120.0}
"""Importing torch takes 2 s, and up to a minute from a cold disk."""
FIRST_CALL_S = {Kind.SHARED_OBJECT: 0.0, Kind.PYTHON: 60.0}
"""More for the first request of a workload: torch.compile works then."""
END_S = 2.0
"""A process that has died is reported in milliseconds."""
MAX_SLOTS, MAX_ARGUMENTS, MAX_AXES = 64, 128, 64
"""As in native.cpp."""
MAX_ANSWER = 65_536
SPINS = "200"
"""Turns of a waiting OpenMP thread before it sleeps: some microseconds, more than lies between two calls."""
PYTHON_BYTES = 256 << 20
"""Address space of an interpreter that imports only ctypes."""
TORCH_BYTES = 6 << 30
"""Address space of one that imports torch."""
SIGNALS = {
    "SIGKILL": " (killed by the kernel: out of memory)",
    "SIGXFSZ": " (it wrote to a file)",
    "SIGXCPU": " (it used up its processor time)",
    "SIGSEGV": " (it touched memory that is not its own)",
    "SIGILL": " (an instruction this processor does not have)",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One call: where in the arena its tensors are, the values of its scalars, the size of every axis."""

    inputs: tuple[int | float | bool, ...]
    """In the definition's order: an offset for a tensor, the value itself for a scalar."""
    outputs: tuple[int, ...]
    axes: Mapping[str, int]


class Runner:
    """Started when built, ready at the first call, gone when closed. After a failure it only repeats it."""

    def __init__(
        self,
        artifact: Artifact,
        problem: Problem,
        device: Device,
        arena: Arena,
        native: Native,
        *,
        memory_bytes: int,
        timeout_s: float,
        at: sandbox.Level | None = None,
    ) -> None:
        """`memory_bytes` are what the candidate itself may use; the arena comes on top."""
        definition = problem.definition
        if len(_specs(definition)) > MAX_ARGUMENTS or len(definition.runtime_axes) > MAX_AXES:
            raise Refused(
                f"more than {MAX_ARGUMENTS} inputs and outputs, or {MAX_AXES} axes", where=problem.name
            )
        self._artifact = artifact
        self._problem = problem
        self._timeout_s = timeout_s
        self._failure: Failure | None = None
        self._begun: set[frozenset[tuple[str, int]]] = set()
        """The sizes that it was called with."""
        self.pid: int | None = None
        """The candidate's process, once it is ready."""
        self.wall_ns = 0
        """From letting the runner go on to its answer to the last request, by the judge's clock."""
        self.busy_ns = 0
        """Processor time that the last request took, and what came after the one before; a core's share."""
        self._cores = len(device.cores)
        self._busy_before_ns = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            spec = self._spec(device, arena, native, theirs.fileno())
            self._process = sandbox.spawn(
                [os.path.realpath(sys.executable), "-I", "-S", str(MAIN), json.dumps(spec)],
                limits=_limits(artifact.kind, device, memory_bytes + arena.size),
                cores=device.cores,
                env=_environment(device),
                readable=[MAIN, native.path, artifact.path, *_torch_folders(artifact.kind)],
                pass_fds=[theirs.fileno(), arena.fd],
                is_pinned=True,
                at=at,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """The tail of what the candidate has printed."""
        return self._process.log

    @property
    def clock(self) -> str:
        return "monotonic"

    def ready(self) -> Failure | None:
        """Wait until the candidate is loaded; return how that failed, if it did."""
        if self._failure is None and self.pid is None:
            limit_s = START_S[self._artifact.kind]
            answer = self._receive(limit_s)
            if answer == HELLO:
                answer = self._receive(limit_s)
            if isinstance(answer, Failure):
                self._failure = replace(answer, reason=f"{answer.reason}, while it was being loaded")
                return self._failure
            self._stop()
            if answer != READY:
                self._failure = self._told(answer, b"")
            elif self.pid is not None:
                with suppress(OSError):  # it has died since: the first request will tell
                    self._busy_before_ns = tasks.busy_ns(self.pid)
        return self._failure

    def call(self, slots: Sequence[Slot], timeout_s: float | None = None) -> list[int] | Failure:
        """Run the candidate once per slot; return the nanoseconds it claims for each.

        The limit is for the whole request. The caller has flushed the slots' memory from the caches.
        """
        if not 0 < len(slots) <= MAX_SLOTS:
            raise ValueError(f"{len(slots)} slots; 1 to {MAX_SLOTS} are possible")
        if failure := self.ready():
            return failure
        nonce = secrets.token_bytes(WORD)
        request = nonce + b"".join(map(self._pack, slots))
        start_ns = time.monotonic_ns()
        self._continue()
        try:
            self._socket.send(request)
        except (BrokenPipeError, ConnectionResetError):
            answer: bytes | Failure = self._ended()
        else:
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            answer = self._receive(limit_s + self._more_s(slots[0]))
        self.wall_ns = time.monotonic_ns() - start_ns
        if isinstance(answer, Failure):
            self._failure = answer  # and its process is gone: its id may be another's by now
            return answer
        self._stop()
        if failure := self._not_alone():
            self._failure = failure
            return failure
        if len(answer) == WORD * (1 + len(slots)) and answer.startswith(nonce):
            claims = list(struct.unpack(f"<{len(slots)}q", answer[WORD:]))
            if min(claims) > 0 and sum(claims) <= self.wall_ns:
                return claims
            self._failure = Failure(
                Status.REWARD_HACK, f"the runner claims {claims} ns within {self.wall_ns} ns", self.log
            )
        else:
            self._failure = self._told(answer, nonce)
        return self._failure

    def linger(self, seconds: float) -> None:
        """Let it go on without a request, for what it may have left undone."""
        if self._failure is None:
            self._continue()
            time.sleep(seconds)
            self._stop()

    def close(self) -> None:
        """Kill everything the candidate started, and wait until it is gone."""
        self._socket.close()
        self._process.close()

    def _spec(self, device: Device, arena: Arena, native: Native, control: int) -> dict[str, object]:
        definition = self._problem.definition
        return {
            "kind": self._artifact.kind,
            "path": str(self._artifact.path),
            "entry": self._artifact.entry,
            "native": str(native.path),
            "control_fd": control,
            "arena_fd": arena.fd,
            "arena_bytes": arena.size,
            "threads": len(device.cores),
            "scalars": [spec.is_scalar for spec in definition.inputs.values()]
            + [False] * len(definition.outputs),
            "dtypes": [spec.dtype for spec in _specs(definition)],
            "axes": definition.runtime_axes,
            "shapes": self._shapes(),
            "site": [str(folder) for folder in _torch_folders(self._artifact.kind)],
        }

    def _shapes(self) -> list[list[int | str]]:
        """The shape of every argument: a number, or the name of an axis that a call sizes."""
        constants = self._problem.definition.constants

        def size(dim: str) -> int | str:
            return int(dim) if dim.isdecimal() else constants.get(dim, dim)

        return [[size(dim) for dim in spec.shape or ()] for spec in _specs(self._problem.definition)]

    def _pack(self, slot: Slot) -> bytes:
        definition = self._problem.definition
        words = [
            struct.pack("<d", value) if spec.is_scalar and spec.dtype.is_float else struct.pack("<q", value)
            for spec, value in zip(definition.inputs.values(), slot.inputs, strict=True)
        ]
        words += [struct.pack("<q", offset) for offset in slot.outputs]
        words += [struct.pack("<q", slot.axes[name]) for name in definition.runtime_axes]
        return b"".join(words)

    def _more_s(self, slot: Slot) -> float:
        """Return what a request may take beyond the limit, as it is the first of its sizes."""
        sizes = frozenset(slot.axes.items())
        is_first = sizes not in self._begun
        self._begun.add(sizes)
        return FIRST_CALL_S[self._artifact.kind] if is_first else 0.0

    def _receive(self, limit_s: float) -> bytes | Failure:
        """Wait for one message of the runner, keeping the tail of what it prints meanwhile."""
        deadline = time.monotonic() + limit_s
        watched = [self._socket.fileno(), self._process.log_fd]
        while True:
            ready, _, _ = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))
            if self._socket.fileno() in ready:
                try:
                    data, ancillary, _, _ = self._socket.recvmsg(MAX_ANSWER, socket.CMSG_SPACE(12))
                except ConnectionResetError:
                    return self._ended()
                if not data:
                    return self._ended()
                if self.pid is None and ancillary:
                    self.pid = struct.unpack("iII", ancillary[0][2])[0]
                return data
            if not ready or time.monotonic() > deadline:  # some print without an end
                self._process.close()
                return Failure(Status.TIMEOUT, f"did not answer within {limit_s:g} s", self.log)
            if not self._process.drain():
                watched.remove(self._process.log_fd)

    def _ended(self) -> Failure:
        """Say how the runner ended, when it was not to."""
        end = self._process.wait(END_S)
        self._process.close()
        if end is None:
            return Failure(Status.RUNTIME_ERROR, "closed its connection to the judge", self.log)
        how = f"ended by itself with {end}" if end.signal is None else f"died of {end}"
        meaning = SIGNALS.get(end.signal or "", "")
        return Failure(Status.RUNTIME_ERROR, how + meaning, self.log)

    def _not_alone(self) -> Failure | None:
        """Look at what the stopped runner has used, and at what is not stopped with it."""
        assert self.pid is not None, "it has answered, so the kernel has told its id"
        try:
            busy_ns = tasks.busy_ns(self.pid)
        except OSError:
            return self._ended()
        self.busy_ns = (busy_ns - self._busy_before_ns) // self._cores
        self._busy_before_ns = busy_ns
        return tasks.company(tasks.beside(self.pid, self._process.pid), self.log)

    def _told(self, answer: bytes, nonce: bytes) -> Failure:
        """Read an answer that is not a list of times: the failure it tells, or a forgery."""
        if answer.startswith(nonce + FAILED):
            reason = answer.removeprefix(nonce + FAILED).decode("utf-8", "replace")
            return Failure(Status.RUNTIME_ERROR, reason.strip(), self.log)
        return Failure(Status.REWARD_HACK, "something other than the runner answered the judge", self.log)

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _continue(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def _limits(kind: Kind, device: Device, memory_bytes: int) -> sandbox.Limits:
    """Return what a candidate of this kind needs: Python may compile, the others may not write at all."""
    if kind is Kind.PYTHON:
        return sandbox.Limits(
            memory_bytes=memory_bytes + TORCH_BYTES,
            file_bytes=256 << 20,
            processes=256 + 4 * len(device.cores),
            open_files=1024,
            scratch_bytes=2 << 30,
        )
    return sandbox.Limits(memory_bytes=memory_bytes + PYTHON_BYTES, processes=16 + 4 * len(device.cores))


def _environment(device: Device) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(len(device.cores)),
        "GOMP_SPINCOUNT": SPINS,  # else threads that have nothing to do look like threads at work
        "USER": "swarm",  # inductor asks for it, and there is no /etc/passwd
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _torch_folders(kind: Kind) -> list[Path]:
    """Where torch is, for candidates that are Python."""
    if kind is not Kind.PYTHON:
        return []
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise Refused("torch is not installed", remedy="pip install torch")
    return [Path(found.origin).parent.parent]


def _specs(definition: Definition) -> list[TensorSpec]:
    return [*definition.inputs.values(), *definition.outputs.values()]
