"""Run a problem's reference in a sandbox: a parent that has torch loaded, and one forked child per problem.

The parent never touches problem code, so its children start clean and in milliseconds. A child maps the
arenas it is given, reads inputs from them and writes results into them; it is asked by, and answers, one
JSON message at a time. Nothing it says is more than a claim about the reference.
"""

from __future__ import annotations

import gc
import json
import linecache
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # counting FLOPs needs it: seconds that no child should pay

from swarm.definition import DType
from swarm.judge import elements
from swarm.judge.results import as_tensor, in_order, made_inputs, told
from swarm.judge.runner_main import keep_freed_memory
from swarm.judge.wire import Closed, receive, send

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}


def main(make_child: type[Child] | None = None) -> int:
    """Serve until the other end is gone; each child is of the class `make_child`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    threads = int(sys.argv[2])
    if "compile" in sys.argv[3:]:
        _load_compiler()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        raise RuntimeError(f"cannot fork beside the threads {others}")
    answer(control, {"ready": True})
    while True:
        try:
            _, fds = receive(control)
        except Closed:
            return 0
        if os.fork() == 0:
            control.close()
            (make_child or Child)(socket.socket(fileno=fds[0]), threads).serve()
            os._exit(0)
        os.close(fds[0])


class Child:
    """One problem's reference, and the buffers it works on."""

    device = "cpu"

    def __init__(self, peer: socket.socket, threads: int) -> None:
        self._peer = peer
        self._maps: dict[str, torch.Tensor] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._origins: dict[str, tuple[str, str]] = {}
        """The file that each function is from, and how it is called there."""
        self._threads = threads

    def serve(self) -> None:
        torch.set_num_threads(self._threads)
        torch.backends.cudnn.allow_tf32 = False  # by default float32 convolutions have 10 bits on a GPU
        while True:
            try:
                data, fds = receive(self._peer)
            except Closed:
                return
            message = json.loads(data)
            try:
                said = getattr(self, f"do_{message['do']}")(message, fds)
            except Exception as error:  # whatever problem code raises is the answer
                said = {"error": told(error, message.get("name", ""), self._origins)}
            answer(self._peer, said)

    def do_pin(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Move to other cores with all threads: those that torch computes with are there by now."""
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(thread.name), message["cores"])
        return {}

    def do_map(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        memory = mmap.mmap(fds[0], message["size"], flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        os.close(fds[0])
        self._maps[message["name"]] = torch.frombuffer(memory, dtype=torch.uint8)
        return {}

    def do_load(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Execute source text and keep its function, compiled if asked to, under a name."""
        self._origins[message["name"]] = message["file"], message["entry"]
        space: dict[str, Any] = {"__name__": message["name"]}
        lines = message["source"].splitlines(
            keepends=True
        )  # for decorators that read their function's source
        linecache.cache[message["file"]] = (len(message["source"]), None, lines, message["file"])
        exec(compile(message["source"], message["file"], "exec"), space)
        function = space[message["entry"]]
        self._functions[message["name"]] = torch.compile(function) if message["compile"] else function
        return {}

    def do_module(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        from swarm.judge.modules import describe

        return describe(message["source"], message["file"])

    def do_compile(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call a function once per set of inputs, all zeros, so that torch compiles it for them."""
        begun = time.perf_counter()
        with torch.no_grad():
            for items in message["calls"]:
                self._functions[message["name"]](*map(blank, items))
        return {"seconds": time.perf_counter() - begun}

    def do_run(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Compute expected outputs, in the dtype they are compared in."""
        spent_s = 0.0
        for call in message["calls"]:
            inputs = [self._value(item) for item in call["inputs"]]
            if message["widen"]:
                inputs = [_widened(x) for x in inputs]
            begun = time.perf_counter()
            with torch.no_grad():
                results = in_order(self._functions[message["name"]](*inputs), call["outputs"])
            spent_s += time.perf_counter() - begun
            for item, result in zip(call["outputs"], results, strict=True):
                self._store(item, result)
        return {"seconds": spent_s}

    def do_time(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call a function once per slot and say how long each call took; outputs are copied afterwards.

        Like a candidate in a runner, it pays neither for page faults nor for the garbage collector.
        """
        keep_freed_memory()
        gc.disable()
        function = self._functions[message["name"]]
        taken_ns = []
        with torch.no_grad():
            for slot in message["slots"]:
                inputs = [self._value(item) for item in slot["inputs"]]
                begun_ns = time.perf_counter_ns()
                result = function(*inputs)
                taken_ns.append(time.perf_counter_ns() - begun_ns)
                for item, value in zip(slot["outputs"], in_order(result, slot["outputs"]), strict=True):
                    self._put(item, value)
                del result, value  # here, not within the next call's time
        return {"ns": taken_ns}

    def do_custom(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Let the problem's own entry point make all inputs; tensors are stored, scalars returned."""
        torch.manual_seed(message["seed"])
        made = self._functions[message["name"]](message["axes"], torch.device(self.device))
        scalars: dict[str, Any] = {}
        for item, value in zip(message["inputs"], made_inputs(made, message["inputs"]), strict=True):
            if item["offset"] is None:
                scalars[item["name"]] = value
            else:
                self._put(item, value)
        return {"scalars": scalars}

    def do_flops(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        from swarm.judge.flops import count_flops

        specs = [
            (item["shape"], self._seen(item["dtype"], message), item["value"]) for item in message["inputs"]
        ]
        return {"flops": count_flops(self._functions[message["name"]], specs)}

    def _seen(self, dtype: str, message: dict[str, Any]) -> str:
        """Return the dtype in which the reference sees an input of `dtype`."""
        own = getattr(torch, dtype)
        return str(WIDER.get(own, own) if message["widen"] else own).removeprefix("torch.")

    def _value(self, item: dict[str, Any]) -> Any:
        """Return a view of a buffer as the problem's tensor, or the scalar itself."""
        if item["offset"] is None:
            return item["value"]
        part = self._maps[item["map"]][item["offset"] : item["offset"] + item["nbytes"]]
        return part.view(getattr(torch, item["dtype"])).reshape(item["shape"])

    def _put(self, item: dict[str, Any], value: Any) -> None:
        """Copy a tensor into a buffer as it is."""
        view = self._value(item)
        view.copy_(as_tensor(value, item).reshape(view.shape))

    def _store(self, item: dict[str, Any], result: Any) -> None:
        """Copy a tensor into a buffer in the dtype it is compared in."""
        tensor = as_tensor(result, item)
        values = elements.comparable(tensor.flatten(), DType(item["kind"]))
        view = self._value(item)
        view.copy_(values.reshape(view.shape))


def _widened(value: Any) -> Any:
    return value.to(WIDER.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value


def blank(item: dict[str, Any]) -> Any:
    """Return an input that only has the right shape."""
    if item["shape"] is None:
        return item["value"]
    return torch.zeros(item["shape"], dtype=getattr(torch, item["dtype"]))


def answer(peer: socket.socket, message: dict[str, Any]) -> None:
    send(peer, json.dumps(message).encode())


def _load_compiler() -> None:
    """Import torch.compile's machinery and make it work once, so that no child pays for that."""
    import torch._inductor.compile_fx  # three seconds that plain references should not wait for

    with suppress(ImportError):
        import tqdm  # type: ignore[import-untyped]  # torch shows its progress with it, where it is installed

        tqdm.tqdm.monitor_interval = 0  # else it starts a thread, and one cannot fork beside threads
    torch.set_num_threads(1)
    torch.compile(lambda x: x + 1)(torch.ones(8))
    torch.compiler.reset()


if __name__ == "__main__":
    sys.exit(main())
