"""The runner's own code: load one candidate, then run it on the slots that the judge names.

Runs as `python -I -S runner_main.py SPEC` inside a sandbox: standard library only, and torch if the
candidate is Python. All of this process is at the candidate's mercy, so nothing here protects anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

HELLO, READY, FAILED = b"hello", b"ready", b"!"
MAX_REQUEST = 1 << 20
WORD = 8
TEXT_CHARS = 4000
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def main() -> None:
    spec = SimpleNamespace(**json.loads(sys.argv[1]))
    control = socket.socket(fileno=spec.control_fd)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; writing a file is to be fatal
    control.send(HELLO)  # the kernel adds our process id, before any code of the candidate has run
    if spec.kind == "shared_object":
        _serve_native(spec, control)
    else:
        _serve_python(spec, control)


def _serve_native(spec: SimpleNamespace, control: socket.socket) -> None:
    native = ctypes.CDLL(spec.native)
    arena = _mapped(native, spec.arena_fd, spec.arena_bytes)
    try:
        entry = getattr(ctypes.CDLL(spec.path, mode=os.RTLD_NOW | os.RTLD_LOCAL), spec.entry)
    except (OSError, AttributeError) as error:
        _fail(control, b"", f"cannot load the shared object: {error}")
        return
    scalars = (ctypes.c_uint8 * max(1, len(spec.scalars)))(*spec.scalars)
    control.send(READY)
    native.swarm_serve(
        spec.control_fd,
        ctypes.c_void_p(arena),
        ctypes.cast(entry, ctypes.c_void_p),
        len(spec.scalars),
        scalars,
        len(spec.axes),
    )


def _mapped(native: ctypes.CDLL, fd: int, size: int) -> int:
    native.swarm_map.restype = ctypes.c_void_p
    address = native.swarm_map(fd, ctypes.c_size_t(size))
    if not address:
        raise MemoryError(f"cannot map {size} bytes")
    return int(address)


def _serve_python(spec: SimpleNamespace, control: socket.socket) -> None:
    import gc
    import traceback

    keep_freed_memory()
    sys.path.extend(spec.site)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.environ["HOME"], "inductor"))  # noqa: PTH118
    import torch

    torch.set_num_threads(spec.threads)
    torch.set_grad_enabled(False)
    native = ctypes.PyDLL(spec.native)
    slots = _Slots(spec, torch)
    nonce = b""
    try:
        run = _load(spec.path, spec.entry)
        gc.disable()
        answer = READY
        while True:
            gc.collect()
            gc.freeze()  # what a call leaves behind is looked through once, not after every request
            control.send(answer)  # only now: between a request and its calls there is no time to read ahead
            request = control.recv(MAX_REQUEST)
            if not request:
                return
            nonce, words = request[:WORD], request[WORD:]
            answer = nonce
            for arguments in slots.unpack(words):
                answer += _timed(native, run, arguments).to_bytes(WORD, "little", signed=True)
    except (Exception, SystemExit) as error:  # whatever a candidate raises is told in its own words
        print(traceback.format_exc(), flush=True)
        _fail(control, nonce, f"{type(error).__name__}: {error}")


def keep_freed_memory() -> None:
    """Let malloc reuse what was freed instead of returning it: else each call pays for page faults."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_ARENA_MAX, 1)


def _load(folder: str, entry: str) -> Callable[..., Any]:
    import importlib

    file, _, function = entry.partition("::")
    sys.path.insert(0, folder)
    module: ModuleType = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    run: Callable[..., Any] = getattr(module, function)
    return run


class _Slots:
    """Turns the words of a request into the arguments of each slot: inputs, then outputs."""

    def __init__(self, spec: SimpleNamespace, torch: Any) -> None:
        import mmap

        self._spec = spec
        self._torch = torch
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._memory = mmap.mmap(spec.arena_fd, spec.arena_bytes, flags=flags)

    def unpack(self, data: bytes) -> list[tuple[Any, ...]]:
        spec, slots = self._spec, []
        count = len(spec.scalars)
        size = WORD * (count + len(spec.axes))
        for start in range(0, len(data), size):
            words = [data[at : at + WORD] for at in range(start, start + size, WORD)]
            axes = dict(zip(spec.axes, map(_integer, words[count:]), strict=True))
            slots.append(tuple(self._value(index, word, axes) for index, word in enumerate(words[:count])))
        return slots

    def _value(self, index: int, word: bytes, axes: dict[str, int]) -> Any:
        name = self._spec.dtypes[index]
        if self._spec.scalars[index]:
            if "float" in name:
                return ctypes.c_double.from_buffer_copy(word).value
            return bool(_integer(word)) if name == "bool" else _integer(word)
        shape = [dim if isinstance(dim, int) else axes[dim] for dim in self._spec.shapes[index]]
        if name.startswith("float4"):  # two to a byte
            name, shape[-1] = "float4_e2m1fn_x2", shape[-1] // 2
        dtype = getattr(self._torch, name)
        count = 1
        for dim in shape:
            count *= dim
        if count == 0:
            return self._torch.empty(shape, dtype=dtype)
        return self._torch.frombuffer(self._memory, dtype=dtype, count=count, offset=_integer(word)).view(
            shape
        )


def _timed(native: ctypes.PyDLL, run: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Call `run` by the clock that times native candidates; return nanoseconds."""
    native.swarm_timed_python.restype = ctypes.c_int64
    result = ctypes.py_object()
    claimed: int = native.swarm_timed_python(
        ctypes.py_object(run), ctypes.py_object(arguments), ctypes.byref(result)
    )
    ctypes.pythonapi.Py_DecRef(result)  # the reference that the call itself returned
    return claimed


def _integer(word: bytes) -> int:
    return int.from_bytes(word, "little", signed=True)


def _fail(control: socket.socket, nonce: bytes, reason: str) -> None:
    control.send(nonce + FAILED + reason[:TEXT_CHARS].encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
