"""A runner's session on the emulated device: the product from requests to claims, without a GPU and a tracer.

Time is counted, not taken: each kernel lasts as long as it says, on one stream. What a candidate puts aside
with `later` runs when everything is waited for, as on a stream that nobody joined.
"""

from __future__ import annotations

import array
import ctypes
import secrets
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.judge.cuda import candidates, driver, gpu, session
from swarm.judge.cuda.gpu import Gpu
from swarm.judge.cuda.session import Session
from swarm.judge.cuda.spans import MEMCPY, MEMSET, Record
from swarm.judge.cuda.wire import Clock, Layout, Request

N = 1000
BYTES = 4 * N
SLOT_BYTES = 8192
KERNEL_NS = 3_000
LAYOUT = Layout(("x", "y"), ("float32", "float32"), (("n",), ("n",)), 1, ("n",), {})
OURS = ("swarm_veil", "swarm_sum")
"""Kernels of a runner that are emulated; the others only take time."""


class Device:
    """The counted time of the device, what ran on it, and what is still to run."""

    def __init__(self, emulated: Callable[..., Any]) -> None:
        self.now_ns = 0
        self.records: list[Record] = []
        self.later: list[Callable[[], None]] = []
        self._emulated = emulated
        self._launches = 0

    def launch(self, function: bytes, *rest: Any) -> tuple[int]:
        if function.decode() in OURS:
            self._emulated(function, *rest)
        self.ran(function.decode(), KERNEL_NS)
        return (0,)

    def traced(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the driver that shows up as an activity."""

        def call(*arguments: Any) -> Any:
            self.ran(name, KERNEL_NS)
            return function(*arguments)

        return call

    def ran(self, name: str, ns: int, early_ns: int = 0) -> None:
        """Let a kernel run; it began `early_ns` before its turn, on another stream."""
        self._launches += 1
        start = self.now_ns - early_ns
        self.now_ns += max(0, ns - early_ns)
        self.records.append(Record(name, start, start + ns, self._launches, 1))

    def synchronize(self) -> tuple[int]:
        while self.later:
            self.later.pop(0)()
        return (0,)


class Tracer:
    """What stands for CUPTI."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def switch(self, on: bool) -> bool:
        self._device.records.clear()
        return False

    def take(self) -> list[Record]:
        taken, self._device.records = self._device.records, []
        return taken


class Bench:
    """A session with a candidate of the test's, and memory for its slots: y = 2 x."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        cuda = driver.bindings()
        self.device = Device(cuda.cuLaunchKernel)
        patch.setattr(cuda, "cuLaunchKernel", self.device.launch)
        for name, shown in (("cuMemsetD8Async", MEMSET), ("cuMemcpyDtoHAsync", MEMCPY)):
            patch.setattr(cuda, name, self.device.traced(shown, getattr(cuda, name)))
        patch.setattr(cuda, "cuDeviceGetCount", lambda: (0, 1), raising=False)
        patch.setattr(cuda, "cuCtxSynchronize", self.device.synchronize, raising=False)
        patch.setattr(cuda, "cuCtxResetPersistingL2Cache", lambda: (0,), raising=False)
        patch.setattr(cuda, "CUevent_flags", SimpleNamespace(CU_EVENT_DEFAULT=0), raising=False)
        patch.setattr(cuda, "CUresult", SimpleNamespace(CUDA_ERROR_NOT_READY=600), raising=False)
        patch.setattr(cuda, "cuEventCreate", lambda flags: (0, [0]), raising=False)
        patch.setattr(cuda, "cuEventRecord", self._record, raising=False)
        patch.setattr(cuda, "cuEventQuery", lambda event: (0,), raising=False)
        patch.setattr(cuda, "cuEventElapsedTime", lambda a, b: (0, (b[0] - a[0]) / 1e6), raising=False)
        patch.setattr(gpu, "Activities", lambda: Tracer(self.device))
        patch.setattr(session, "_limit_memory", lambda nbytes: None)
        self.memory = array.array("f", [0.0] * (16 * SLOT_BYTES // 4))
        self.base = -(-self.memory.buffer_info()[0] // 256) * 256
        patch.setattr(session, "MappedArena", lambda *given: SimpleNamespace(address=self.base))
        self._patch = patch
        self.gpu = Gpu("GPU-00000000-0000-0000-0000-000000000000", b"", is_legacy=False)

    def _record(self, event: list[int], stream: object) -> tuple[int]:
        event[0] = self.device.now_ns
        return (0,)

    def session(self, kind: str, work: Callable[[Bench, int, list[int]], None], **head: Any) -> Session:
        """Load a candidate that does `work(bench, slot, all slots)` in a call."""
        self._patch.setattr(candidates, "load", lambda *given: Candidate(self, work))
        given = {
            "kind": kind,
            "dirty": False,
            "memory_bytes": 0,
            "layout": LAYOUT.to_json(),
            "arena_bytes": 1,
        }
        made = Session(self.gpu, given | {"returns_outputs": False, "converts_outputs": False} | head, [0])
        made.load({})
        return made

    def request(
        self, made: Session, count: int, clock: Clock = Clock.CUPTI, *, is_first: bool = False
    ) -> bytes:
        """Fill so many slots and make a request."""
        self.slots = [SLOT_BYTES * index for index in range(count)]
        for slot in self.slots:
            self.floats(slot)[:] = [float(slot + index) for index in range(N)]
            self.floats(slot + SLOT_BYTES // 2)[:] = [-1.0] * N
        words = tuple(LAYOUT.pack((slot, slot + SLOT_BYTES // 2), {"n": N}) for slot in self.slots)
        return made.answer(Request(secrets.token_bytes(8), clock, 150_000, is_first, words))

    def floats(self, offset: int) -> ctypes.Array[ctypes.c_float]:
        return (ctypes.c_float * N).from_address(self.base + offset)

    def double(self, slot: int) -> None:
        """Do the work of a slot, in no time."""
        x, y = self.floats(slot), self.floats(slot + SLOT_BYTES // 2)
        y[:] = [2 * value for value in x]

    def wrong(self) -> list[int]:
        """Return the numbers of the slots whose outputs are wrong."""
        return [
            number
            for number, slot in enumerate(self.slots)
            if list(self.floats(slot + SLOT_BYTES // 2)) != [2.0 * (slot + index) for index in range(N)]
        ]

    def changed_inputs(self) -> list[int]:
        return [
            number
            for number, slot in enumerate(self.slots)
            if list(self.floats(slot)) != [float(slot + index) for index in range(N)]
        ]


class Candidate:
    """The five steps of a call, whose span is the test's."""

    def __init__(self, bench: Bench, work: Callable[[Bench, int, list[int]], None]) -> None:
        self._bench = bench
        self._work = work

    def prepare(self, index: int, arguments: Sequence[int | float], axes: object) -> int:
        return int(arguments[0])

    def enqueue(self, slot: int) -> None:
        self._work(self._bench, slot, self._bench.slots)

    def poison(self, slot: int) -> None: ...

    def finish(self, slot: int) -> None: ...

    def blocks(self, slot: int) -> int:
        return 1

    def close(self) -> None: ...
