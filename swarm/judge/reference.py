"""The judge's side of a reference: starts the sandboxed parent, opens a child per problem, keeps them warm.

What the reference computes is stored in memory that no candidate ever maps. A reference that fails, hangs
or returns other shapes raises InvalidReference: that is the problem's fault, never a candidate's.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from swarm import sandbox
from swarm.definition import REFERENCE_FILE, Definition
from swarm.device import Device
from swarm.judge import elements
from swarm.judge.slots import Buffer
from swarm.judge.wire import Closed, receive, send
from swarm.problem import Problem
from swarm.workload import Workload, scalar_fault

ROOT = Path(__file__).resolve().parents[2]
START_S, CALL_S, COMPILE_S = 120.0, 60.0, 120.0
PARENT_END_S = 0.2
"""Its children die with it; it is seen to have ended a moment later."""
KEPT = 16
PLAIN, FAST = "reference", "fast_reference"
"""The names of a problem's functions, after their files."""
FOLDERS = [ROOT / "swarm", *map(Path, sorted({sys.prefix, sys.base_prefix}))]
"""What a reference's process reads besides the system."""
LIMITS = sandbox.Limits(
    memory_bytes=64 * sandbox.GIB,
    file_bytes=1 << 30,
    processes=256,
    open_files=1024,
    cpu_s=24 * 3600,
    scratch_bytes=1 << 30,
)
Scalar = int | float | bool
InputSpec = tuple[Sequence[int] | None, str, Scalar | None]
"""(shape, torch dtype, None), or (None, dtype, the scalar)."""


class Arena(Protocol):
    """Memory that another process can map by its descriptor; of what kind, both sides know."""

    fd: int
    size: int


class InvalidReference(Exception):
    """The problem's own code failed; the text says how."""

    def __init__(self, reason: str, *, is_hung: bool = False) -> None:
        super().__init__(reason)
        self.is_hung = is_hung


class Reference:
    """One problem's reference code, loaded in a process of its own."""

    answers = PLAIN
    """The function that outputs are expected of."""

    def __init__(self, peer: socket.socket, problem: str, definition: Definition, is_wider: bool) -> None:
        self._peer = peer
        self._problem = problem
        self._definition = definition
        self._is_wider = is_wider
        self._mapped: dict[str, Arena] = {}
        self._loaded: set[str] = set()

    def load(
        self, name: str, source: str, *, entry: str = "run", compiled: bool = False, file: str = ""
    ) -> None:
        """Execute `source`, the text of `file`, and keep its function `entry` under `name`; again is free."""
        if name in self._loaded:
            return
        self._ask(
            {"do": "load", "name": name, "source": source, "entry": entry, "compile": compiled}
            | {"file": f"{self._problem}/{file or f'{name}.py'}"}
        )
        self._loaded.add(name)

    def map(self, name: str, arena: Arena) -> None:
        """Let the code see `arena` under `name`, in place of what it saw there before."""
        if self._mapped.get(name) is not arena:
            self._ask({"do": "map", "name": name, "size": arena.size}, [arena.fd])
            self._mapped[name] = arena

    def pin(self, cores: Sequence[int]) -> None:
        self._ask({"do": "pin", "cores": list(cores)})

    def expect(
        self,
        arena: str,
        inputs: Sequence[Buffer | Scalar],
        outputs: Sequence[Buffer],
        name: str | None = None,
    ) -> float:
        """Compute `outputs` (in the dtype they are compared in) from `inputs`; return the seconds it took.

        By the function `name`, else by the one that answers.
        """
        return self.expect_each(arena, arena, [(inputs, outputs)], name)

    def expect_each(
        self,
        given: str,
        wanted: str,
        work: Sequence[tuple[Sequence[Buffer | Scalar], Sequence[Buffer]]],
        name: str | None = None,
    ) -> float:
        """Do what `expect` does for several calls; inputs lie in arena `given`, outputs go to `wanted`."""
        calls = [
            {
                "inputs": self._items(given, inputs),
                "outputs": [self._output(wanted, b, is_compared=True) for b in outputs],
            }
            for inputs, outputs in work
        ]
        message = {"do": "run", "name": name or self.answers, "widen": self._is_wider, "calls": calls}
        return float(self._ask(message)["seconds"])

    def time(
        self,
        name: str,
        arena: str,
        slots: Sequence[tuple[Sequence[Buffer | Scalar], Sequence[Buffer]]],
        timeout_s: float = COMPILE_S,
    ) -> list[int]:
        """Call the function `name` once per slot, as a baseline; return the nanoseconds of each call."""
        message = {
            "do": "time",
            "name": name,
            "slots": [
                {
                    "inputs": self._items(arena, inputs),
                    "outputs": [self._output(arena, b, is_compared=False) for b in outputs],
                }
                for inputs, outputs in slots
            ],
        }
        return [int(ns) for ns in self._ask(message, timeout_s=timeout_s)["ns"]]

    def compile_for(self, name: str, calls: Sequence[Sequence[InputSpec]], timeout_s: float) -> float:
        """Have torch compile the function `name` for these calls; return the seconds it took."""
        items = [[_blank(spec) for spec in call] for call in calls]
        message = {"do": "compile", "name": name, "calls": items}
        return float(self._ask(message, timeout_s=timeout_s)["seconds"])

    def make_inputs(
        self, arena: str, axes: Mapping[str, Scalar], seed: int, inputs: Sequence[Buffer | None]
    ) -> dict[str, Scalar]:
        """Let the problem's own entry point fill the input buffers; return the scalar inputs."""
        specs = self._definition.inputs.values()
        items = [
            {"offset": None, "name": n} if b is None else self._output(arena, b, is_compared=False)
            for n, b, _ in zip(self._definition.inputs, inputs, specs, strict=True)
        ]
        message = {"do": "custom", "name": "inputs", "axes": dict(axes), "seed": seed, "inputs": items}
        return {name: self._scalar(name, value) for name, value in self._ask(message)["scalars"].items()}

    def _scalar(self, name: str, value: Any) -> Scalar:
        spec = self._definition.inputs[name]
        if fault := scalar_fault(value, spec):
            raise InvalidReference(f"its own input {name} is wrong: {fault}")
        made: Scalar = value if spec.dtype.is_float or isinstance(value, bool) else int(value)
        return made

    def flops(self, inputs: Sequence[InputSpec]) -> dict[str, float]:
        """Count the FLOPs of the plain reference for one call, by torch's name of what does them."""
        message = {"do": "flops", "name": PLAIN, "widen": self._is_wider}
        said = self._ask(message | {"inputs": [_blank(spec) for spec in inputs]})["flops"]
        return {str(kind): float(flops) for kind, flops in said.items()}

    def close(self) -> None:
        self._peer.close()

    def _items(self, arena: str, inputs: Sequence[Buffer | Scalar]) -> list[dict[str, Any]]:
        return [
            self._input(arena, item) if isinstance(item, Buffer) else {"offset": None, "value": item}
            for item in inputs
        ]

    def _input(self, arena: str, buffer: Buffer) -> dict[str, Any]:
        dtype = buffer.shape.dtype
        return {
            "map": arena,
            "offset": buffer.offset,
            "nbytes": buffer.shape.nbytes,
            "dtype": elements.torch_name(dtype),
            "shape": buffer.shape.stored,
        }

    def _output(self, arena: str, buffer: Buffer, *, is_compared: bool) -> dict[str, Any]:
        """Describe where a result goes: as it is, or converted to the dtype it is compared in."""
        kind = buffer.shape.dtype
        dtype = elements.comparable_dtype(kind) if is_compared else elements.stored_dtype(kind)
        count = buffer.shape.count * (2 if is_compared and kind.is_packed else 1)
        return {
            "name": buffer.shape.name,
            "kind": kind.value,
            "map": arena,
            "offset": buffer.offset,
            "nbytes": count * dtype.itemsize,
            "dtype": str(dtype).removeprefix("torch."),
            "shape": [count],
            "dims": list(buffer.shape.stored),
        }

    def _ask(
        self, message: dict[str, Any], fds: Sequence[int] = (), timeout_s: float = CALL_S
    ) -> dict[str, Any]:
        self._peer.settimeout(timeout_s)
        try:
            send(self._peer, json.dumps(message).encode(), fds)
            said = json.loads(receive(self._peer)[0])
        except Closed:
            raise InvalidReference(f"the reference's process died in {message['do']}") from None
        except TimeoutError:
            reason = f"the reference took over {timeout_s:g} s in {message['do']}"
            raise InvalidReference(reason, is_hung=True) from None
        if "error" in said:
            raise InvalidReference(str(said["error"]))
        assert isinstance(said, dict)
        return said


class References:
    """The warm references of one device; all end with it."""

    def __init__(
        self, device: Device, *, compiling_in: Path | None = None, compiling_on: Sequence[int] = ()
    ) -> None:
        """With a folder and cores to compile in and on, torch.compile is loaded too."""
        self._device = device
        self._cache = compiling_in
        self._cores = device.cores if compiling_in is None else tuple(compiling_on)
        self._control: socket.socket | None = None
        self._process: sandbox.Process | None = None
        self._is_ready = False
        self._open: OrderedDict[str, Reference] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(
        self, key: str, problem: str, definition: Definition, is_wider: bool, fast: str | None = None
    ) -> Reference:
        """Return the loaded reference that is kept under `key`, the epoch; `fast` answers if it is given."""
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        reference = Reference(self._fork(), problem, definition, is_wider)
        try:
            reference.load(PLAIN, definition.reference)
            if fast is not None:
                reference.load(FAST, fast)
                reference.answers = FAST
            if definition.custom_inputs_entrypoint:
                entry = definition.custom_inputs_entrypoint
                reference.load("inputs", definition.reference, entry=entry, file=REFERENCE_FILE)
        except InvalidReference:
            reference.close()
            raise
        self._open[key] = reference
        if len(self._open) > KEPT:
            self._open.popitem(last=False)[1].close()
        return reference

    def answering(self, key: str, problem: Problem) -> Reference:
        """Return the reference whose answers a candidate's are held against."""
        is_wider = problem.settings.reference_precision == "higher"
        return self.get(key, problem.name, problem.definition, is_wider, problem.fast_reference)

    def describe_module(self, source: str, file: str) -> object:
        """Return what a KernelBench file's module is called with, holds and returns: a stranger's word."""
        with self._fork() as peer:
            peer.settimeout(CALL_S)
            try:
                send(peer, json.dumps({"do": "module", "source": source, "file": file}).encode())
                said: object = json.loads(receive(peer)[0])
            except (Closed, TimeoutError, ValueError) as error:
                self.close()  # it hangs, or nobody knows what it did to the others
                what = f"took over {CALL_S:g} s" if isinstance(error, TimeoutError) else "died"
                raise InvalidReference(f"its process {what}") from None
        if isinstance(said, dict) and "error" in said:
            raise InvalidReference(str(said["error"]))
        return said

    def drop(self, key: str, error: InvalidReference) -> None:
        """Forget a reference that failed; a hung one can only be ended with all the others.

        RuntimeError if they all died, of a lack of memory for example: that is not this problem's fault.
        """
        if self._process is not None and self._process.wait(PARENT_END_S) is not None:
            self.close()
            raise RuntimeError(f"the process of all references died: {error}") from error
        if error.is_hung:
            self.close()
        else:
            self.release(key)

    def release(self, key: str) -> None:
        """End the reference that is kept under `key`, if there is one; its memory is free then."""
        if key in self._open:
            self._open.pop(key).close()

    def start(self) -> None:
        """Start the parent, so that the first reference need not wait for torch."""
        if self._control is None:
            self._start()

    def close(self) -> None:
        """End all references; the next one starts afresh."""
        self._is_ready = False
        for reference in self._open.values():
            reference.close()
        self._open.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.close()
            self._process = None

    def _fork(self) -> socket.socket:
        self.wait()
        assert self._control is not None
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                send(self._control, b"open", [theirs.fileno()])
            except Closed:
                mine.close()
                self.close()
                raise RuntimeError("the process of all references died") from None
        return mine

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = self._spawn(theirs.fileno())

    def _spawn(self, fd: int) -> sandbox.Process:
        return sandbox.spawn(
            [sys.executable, "-P", "-B", "-m", "swarm.judge.reference_main", str(fd)]
            + [str(len(self._device.cores))]
            + ([] if self._cache is None else ["compile"]),
            limits=LIMITS,
            cores=self._cores,
            env=_environment(self._device, self._cache),
            readable=FOLDERS,
            writable=[] if self._cache is None else [self._cache],
            pass_fds=[fd],
        )

    def wait(self) -> None:
        """Wait until the parent is ready to open children; start it first if need be."""
        self.start()
        assert self._control is not None and self._process is not None
        if self._is_ready:
            return
        self._control.settimeout(START_S)
        try:
            receive(self._control)
        except (Closed, TimeoutError):
            self._process.drain()
            log = self._process.log
            self.close()
            raise RuntimeError(f"the reference process did not start: {log[-2000:]}") from None
        self._is_ready = True


def input_specs(definition: Definition, workload: Workload) -> list[InputSpec]:
    """Return what the inputs of a workload look like, without their contents."""
    axes = definition.resolve(workload)
    return [
        (definition.shape(name, axes), elements.torch_name(spec.dtype), workload.scalars.get(name, 1))
        for name, spec in definition.inputs.items()
    ]


def _blank(spec: InputSpec) -> dict[str, Any]:
    shape, dtype, value = spec
    return {"shape": shape, "dtype": dtype, "value": value}


def _environment(device: Device, cache: Path | None) -> dict[str, str]:
    threads = str(len(device.cores))
    environment = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "USER": "swarm",  # torch asks for it, and there is no /etc/passwd
    }
    if cache is not None:
        environment |= {
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a pool of workers would be forked into every child
            # Believe /proc/cpuinfo about vector instructions: compiling probes takes 25 s of the minute.
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        }
    return environment
