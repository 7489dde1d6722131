"""The kinds of candidate that a runner loads, each behind the same five steps of a call.

`prepare` turns a slot into whatever the call needs, before anything is queued; `poison` is outside the span,
`enqueue` is the span, `finish` comes after it. All run in the runner's box.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from swarm.judge.cuda.driver import CudaError
from swarm.judge.cuda.memory import TensorBytes
from swarm.judge.cuda.wire import Layout

POISONS = (0x7F, 0xFF)
"""Bytes that make a NaN or a huge number of any float."""


class Candidate(Protocol):
    """What a runner runs; a call is whatever `prepare` returns."""

    def prepare(self, index: int, arguments: Sequence[int | float], axes: Mapping[str, int]) -> Any:
        """Get ready for slot `index` of a request; tensors are offsets into the arena."""

    def poison(self, call: Any) -> None:
        """Queue what must not be there to find from an earlier call."""

    def enqueue(self, call: Any) -> None:
        """Queue the call itself."""

    def finish(self, call: Any) -> None:
        """Queue what has to follow it."""

    def blocks(self, call: Any) -> int:
        """Return how many thread blocks the call's kernels have; 0 if that is not known before they run."""

    def close(self) -> None:
        """Let go of what it holds on the GPU."""


def load(
    gpu: Any, layout: Layout, arena: int, head: Mapping[str, Any], files: Mapping[str, bytes]
) -> Candidate:
    """Load a candidate of the kind that `head` says; `gpu` is the runner's Gpu."""
    kind = head["kind"]
    if kind == "plan":
        return PlanCandidate(gpu, layout, arena, files)
    if kind == "shared_object":
        return NativeCandidate(layout, arena, head, files)
    return PythonCandidate(layout, arena, head, files)


class PlanCandidate:
    """Cubins and the plan of their launches, or the tape of those that were recorded."""

    def __init__(self, gpu: Any, layout: Layout, arena: int, files: Mapping[str, bytes]) -> None:
        from swarm.judge.cuda.launcher import Launcher
        from swarm.judge.cuda.replay_tape import TAPE, Tape
        from swarm.languages.plan import Plan

        self._gpu = gpu
        self._layout = layout
        self._arena = arena
        cubins = {
            int(name.removesuffix(".cubin")): data for name, data in files.items() if name.endswith(".cubin")
        }
        plan: Plan | Tape = (
            Tape.from_json(files[TAPE]) if TAPE in files else Plan.from_json(json.loads(files["plan.json"]))
        )
        self._launcher = Launcher(gpu.context, gpu.stream, plan, cubins, json.loads(files["kernels.json"]))
        self._scratch: dict[str, tuple[int, int]] = {}
        """(address, bytes) by buffer; arrays of tensor maps have one for each slot of a request."""
        self._outgrown: list[int] = []
        self._rng = random.SystemRandom()

    def prepare(self, index: int, arguments: Sequence[int | float], axes: Mapping[str, int]) -> Any:
        if index == 0:
            for address in self._outgrown:
                self._gpu.context.free(address)
            self._outgrown.clear()
        addresses: dict[str, int] = {}
        scalars: dict[str, int | float | bool] = {}
        inputs = len(self._layout.names) - self._layout.outputs
        for at, (name, value) in enumerate(zip(self._layout.names, arguments, strict=True)):
            if self._layout.shapes[at] is not None:
                addresses[f"{'input' if at < inputs else 'output'}:{name}"] = self._arena + int(value)
            else:
                scalars[name] = bool(value) if self._layout.dtypes[at] == "bool" else value
        calls = self._launcher.resolve(axes, scalars)
        poisoned = []
        for name, nbytes in calls.scratch.items():
            is_map = name.startswith("map:")
            addresses[name] = self._room(f"{index}/{name}" if is_map else name, nbytes)
            if not is_map and name not in calls.filled:
                poisoned.append((addresses[name], nbytes))
        return self._launcher.prepare(calls, addresses), poisoned, calls

    def poison(self, call: Any) -> None:
        for address, nbytes in call[1]:
            self._gpu.stream.set_bytes(address, self._rng.choice(POISONS), nbytes)

    def enqueue(self, call: Any) -> None:
        self._launcher.enqueue(call[0])

    def finish(self, call: Any) -> None:
        pass

    def blocks(self, call: Any) -> int:
        return sum(math.prod(step.grid) for step in call[2].steps if hasattr(step, "grid"))

    def close(self) -> None:
        for address in [*self._outgrown, *(address for address, _ in self._scratch.values())]:
            self._gpu.context.free(address)

    def _room(self, key: str, nbytes: int) -> int:
        """Return memory for a buffer; what it outgrows stays until no slot of this request may use it."""
        address, size = self._scratch.get(key, (0, 0))
        if size < nbytes or not address:
            if address:
                self._outgrown.append(address)
            address = self._gpu.context.allocate(nbytes)
            self._scratch[key] = (address, nbytes)
        return address


class NativeCandidate:
    """A shared object whose C entry takes arrays of pointers and of axes, and a stream."""

    def __init__(
        self, layout: Layout, arena: int, head: Mapping[str, Any], files: Mapping[str, bytes]
    ) -> None:
        self._layout = layout
        self._arena = arena
        self._entry: Any = None
        if not head["is_empty"]:
            path = _write(files) / next(iter(files))
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self._entry, self._error = getattr(library, head["entry"]), library.swarm_error
            self._entry.restype = None

    def prepare(self, index: int, arguments: Sequence[int | float], axes: Mapping[str, int]) -> Any:
        scalars = []
        pointers = (ctypes.c_void_p * len(arguments))()
        for at, value in enumerate(arguments):
            if self._layout.shapes[at] is not None:
                pointers[at] = self._arena + int(value)
                continue
            scalars.append(ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value))
            pointers[at] = ctypes.addressof(scalars[-1])
        sizes = (ctypes.c_int64 * max(1, len(self._layout.axes)))(*(axes[n] for n in self._layout.axes))
        return pointers, sizes, scalars

    def poison(self, call: Any) -> None:
        pass

    def enqueue(self, call: Any) -> None:
        if self._entry is None:
            return
        self._entry(call[0], call[1], None)
        if error := self._error():
            runtime = importlib.import_module("cuda.bindings.runtime")
            _, name = runtime.cudaGetErrorName(runtime.cudaError_t(error))
            raise CudaError(name.decode(), "", "what it launched")

    def finish(self, call: Any) -> None:
        pass

    def blocks(self, call: Any) -> int:
        return 0

    def close(self) -> None:
        pass


class PythonCandidate:
    """A Python function, or one of a torch extension, that is given tensors."""

    def __init__(
        self, layout: Layout, arena: int, head: Mapping[str, Any], files: Mapping[str, bytes]
    ) -> None:
        self._torch = importlib.import_module("torch")
        self._layout = layout
        self._arena = arena
        self._returns_outputs = head["returns_outputs"]
        self._converts = head["converts_outputs"]
        self._run: Callable[..., Any] = _nothing if head["is_empty"] else _function(head, files)

    def prepare(self, index: int, arguments: Sequence[int | float], axes: Mapping[str, int]) -> Any:
        values = [self._value(at, value, axes) for at, value in enumerate(arguments)]
        cut = len(values) - self._layout.outputs
        given = values[:cut] if self._returns_outputs else values
        return _Call(given, values[cut:])

    def poison(self, call: Any) -> None:
        pass

    def enqueue(self, call: Any) -> None:
        call.returned = self._run(*call.given)

    def finish(self, call: Any) -> None:
        """Copy what was returned into the slot, for those who return their outputs."""
        if not self._returns_outputs:
            call.returned = None
            return
        names = self._layout.names[-self._layout.outputs :]
        for name, output, value in zip(names, call.outputs, _listed(call.returned, names), strict=True):
            if not self._converts:
                check_returned(self._torch, name, value, output)
            tensor = self._torch.as_tensor(value, device="cuda")
            if tensor.shape != output.shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {tuple(output.shape)}")
            self._bytes(output).copy_(self._bytes(tensor.to(output.dtype)))
        call.returned = None

    def blocks(self, call: Any) -> int:
        return 0

    def close(self) -> None:
        pass

    def _bytes(self, tensor: Any) -> Any:
        return tensor.reshape(-1).view(self._torch.uint8)

    def _value(self, at: int, value: int | float, axes: Mapping[str, int]) -> Any:
        name = self._layout.dtypes[at]
        if self._layout.shapes[at] is None:
            return bool(value) if name == "bool" else value
        torch = self._torch
        shape = list(self._layout.shape(at, axes))
        if name.startswith("float4"):  # two to a byte
            name, shape[-1] = "float4_e2m1fn_x2", shape[-1] // 2
        dtype = getattr(torch, name)
        nbytes = dtype.itemsize
        for dim in shape:
            nbytes *= dim
        if nbytes == 0:
            return torch.empty(shape, dtype=dtype, device="cuda")
        held = TensorBytes(self._arena + int(value), nbytes)
        return torch.as_tensor(held, device="cuda").view(dtype).view(shape)


class _Call:
    """The arguments of one call, and what it returned."""

    def __init__(self, given: list[Any], outputs: list[Any]) -> None:
        self.given = given
        self.outputs = outputs
        self.returned: Any = None


def check_returned(torch: Any, name: str, value: Any, output: Any) -> None:
    """Raise unless a candidate's returned output is there already: nothing is left to do when it is copied.

    A subclass could compute when it is looked at, a conversion would be done for it outside of its time.
    """
    if type(value) is not torch.Tensor:
        raise TypeError(f"{name} is returned as a {type(value).__name__}, not as a torch.Tensor")
    if value.device != output.device:
        raise ValueError(f"{name} is returned on {value.device}, not on {output.device}")
    if value.dtype != output.dtype:
        raise ValueError(f"{name} has dtype {value.dtype}, not {output.dtype}")
    if not value.is_contiguous():
        raise ValueError(f"{name} is returned with strides {value.stride()}, not contiguous")


def _listed(returned: Any, names: Sequence[str]) -> list[Any]:
    """Return outputs in the definition's order, in whichever form a reference may return them."""
    if isinstance(returned, Mapping):
        return [returned[name] for name in names]
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _function(head: Mapping[str, Any], files: Mapping[str, bytes]) -> Callable[..., Any]:
    folder = _write(files)
    where, _, name = head["entry"].partition("::")
    if head["kind"] == "torch_extension":
        module = _extension(where, folder / next(iter(files)))
    else:
        sys.path.insert(0, str(folder))
        module = importlib.import_module(where.removesuffix(".py").replace("/", "."))
    run: Callable[..., Any] = getattr(module, name)
    return run


def _extension(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _write(files: Mapping[str, bytes]) -> Path:
    """Write the candidate's files into the box's own folder."""
    folder = Path(os.environ["HOME"]) / "solution"
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def _nothing(*arguments: Any) -> None:
    """Do what the control does."""
