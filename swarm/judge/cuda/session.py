"""What a runner on a GPU does: start before there is a candidate, load one, run it on the slots named.

For a candidate that is only device code all of this process is ours and what it says is true; else it is at
the candidate's mercy and says what the judge must doubt. Of every request all slots are queued before
anything is awaited.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from swarm.errors import BadInput, SwarmError
from swarm.judge import wire as framing
from swarm.judge.cuda import candidates, driver, wire
from swarm.judge.cuda.candidates import Candidate
from swarm.judge.cuda.clocks import spin_ns
from swarm.judge.cuda.driver import CudaError, Event
from swarm.judge.cuda.gpu import Gpu, is_over
from swarm.judge.cuda.memory import MappedArena
from swarm.judge.cuda.replay_recorder import Recorder
from swarm.judge.cuda.spans import Span, Unreadable, spans
from swarm.judge.cuda.veil import Tensors
from swarm.judge.cuda.warm import import_ahead, warm_up
from swarm.judge.cuda.wire import Claim, Layout, Request

CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUDA_CACHE_PATH": "compute",
}
"""Each is a folder of this box alone."""
OUTSIDE_NS = 2_000
"""How far work of a call may lie beyond its marks: CUPTI's ticks and its idea of when a kernel is over."""
SWITCH_NS = 2_000_000
"""More for the first call after CUPTI came on, which is slow to come to speed."""


class Trick(Exception):
    """A candidate was seen at what no honest one does."""


def serve(spec: SimpleNamespace, control: socket.socket) -> None:
    """Answer the judge until it closes the connection, or until something fails."""
    framing.send(control, wire.HELLO)  # the kernel adds our id, before any code of a candidate has run
    server = _Server(spec, control)
    try:
        server.start()
        server.listen()
    except framing.Closed:
        return
    except (Exception, SystemExit) as error:  # whatever a candidate raises is told in its own words
        if not isinstance(error, CudaError | SwarmError | Trick):  # those say it all
            print(traceback.format_exc(), flush=True)
        framing.send(control, server.told(error))


class _Server:
    """What one process goes through: imports, its GPU, candidates in their places, requests for them."""

    def __init__(self, spec: SimpleNamespace, control: socket.socket) -> None:
        self._spec = spec
        self._control = control
        self._places: dict[int, Session] = {}
        self._current: Session | None = None

    def start(self) -> None:
        """Import what takes time, and turn to the GPU when the judge says so."""
        for name, folder in CACHES.items():
            os.environ[name] = f"{os.environ['HOME']}/{folder}"
        importlib.import_module("cuda.bindings.driver")
        if self._spec.needs_torch:
            import_ahead()
        framing.receive(self._control)
        self._gpu = _start(self._spec)
        offset = json.dumps({"offset_ns": self._gpu.event_offset_ns})
        framing.send(self._control, wire.IDLE + offset.encode())
        if self._spec.needs_torch:
            warm_up(self._control)

    def listen(self) -> None:
        """Load, forget and call candidates as the judge says."""
        while True:
            data, fds = framing.receive(self._control)
            if data.startswith(wire.CALL):
                request = Request.unpack(data)
                self._current = self._places[request.place]
                framing.send(self._control, self._current.answer(request))
                continue
            if data.startswith(wire.RECORD):
                request = Request.unpack(data)
                self._current = self._places[request.place]
                self._current.record(request, Recorder(self._spec.shim), fds[0])
                os.close(fds[0])
                framing.send(self._control, wire.READY)
                continue
            self._current = None
            if data.startswith(wire.LOAD):
                self._load(data, fds)
            else:
                for place in list(self._places):
                    self._places.pop(place).close()
            framing.send(self._control, wire.READY)

    def told(self, error: BaseException) -> bytes:
        """Return the judge's message about an error, which says whose doing it is."""
        session = self._current
        tag, nonce = (wire.FAULT, b"") if session is None else (session.tag(error), session.nonce)
        return tag + nonce + reason_of(error)[: wire.TEXT_CHARS].encode("utf-8", "replace")

    def _load(self, data: bytes, fds: list[int]) -> None:
        head, files = wire.unpack_load(data)
        if head["place"] in self._places:
            self._places.pop(head["place"]).close()
        self._current = self._places[head["place"]] = Session(self._gpu, head, fds)
        self._current.load(files)


def reason_of(error: BaseException) -> str:
    """Say in one line what went wrong, with CUDA's name for it if the GPU reports an error by now."""
    if isinstance(error, CudaError | SwarmError | Trick):
        return str(error)
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    try:
        driver.call("cuCtxSynchronize")
    except CudaError as found:
        return f"{found}; {type(error).__name__}: {words}"
    except SwarmError:  # there is no driver to ask
        pass
    return f"{type(error).__name__}: {words}"


def _start(spec: SimpleNamespace) -> Gpu:
    if spec.needs_torch:
        torch: Any = importlib.import_module("torch")
        torch.set_grad_enabled(False)
        torch.cuda.init()
    with open(spec.cubin_fd, "rb") as file:  # noqa: PTH123
        return Gpu(spec.gpu, file.read(), is_legacy=spec.legacy_stream)


class Session:
    """One candidate in this process, and the arena that it works in."""

    candidate: Candidate

    def __init__(self, gpu: Gpu, head: dict[str, Any], fds: list[int]) -> None:
        self.nonce = b""
        self._gpu = gpu
        self._head = head
        self._is_dirty = head["dirty"]
        self._flush_ns = gpu.flush_ns(dirty=self._is_dirty)
        self._is_ours = head["kind"] == "plan"
        self._events: list[tuple[Event, Event]] = []
        self._veil = gpu.veil
        _limit_memory(head["memory_bytes"])
        self.layout: Layout = Layout.from_json(head["layout"])
        self._arena: MappedArena = MappedArena(gpu.context, fds[0], head["arena_bytes"])

    def load(self, files: dict[str, bytes]) -> None:
        """Load the candidate: from here on an error is its doing, unless all code on the host is ours."""
        self.candidate = candidates.load(self._gpu, self.layout, self._arena.address, self._head, files)

    def close(self) -> None:
        self.candidate.close()
        self._arena.close()

    def tag(self, error: BaseException) -> bytes:
        """Say whose doing an error is."""
        if isinstance(error, Trick):
            return wire.TRICK
        return wire.FAILED if not self._is_ours or isinstance(error, CudaError | BadInput) else wire.FAULT

    def answer(self, request: Request) -> bytes:
        """Make the calls of a request; return the claims for them."""
        self.nonce = request.nonce
        gc.collect()
        gc.freeze()  # what a call leaves behind is looked through once, not before every request
        gc.disable()
        gpu, candidate = self._gpu, self.candidate
        slots = [self.layout.unpack(words) for words in request.slots]
        calls = [candidate.prepare(index, *slot) for index, slot in enumerate(slots)]
        gpu.reset_persisting_l2()
        lead_ns, is_cupti = request.spin_ns, request.clock is wire.Clock.CUPTI
        rush_ns = SWITCH_NS if gpu.switch(cupti=is_cupti) else 0
        self._veil.begin([self._tensors(*slot) for slot in slots])
        if request.is_first:
            enqueue_ns = self._warm_up(calls[0])
            lead_ns = max(lead_ns, spin_ns(enqueue_ns))
        queued = []
        free_ns = 0
        for index, call in enumerate(calls):
            now_ns = time.perf_counter_ns()
            free_ns = max(free_ns, now_ns)
            wait_ns = self._wait_ns(lead_ns, free_ns - now_ns, rush_ns)
            queued.append(self._queue(call, index, wait_ns))
            self._veil.note(index)
            free_ns += wait_ns + self._flush_ns
            rush_ns = 0
        changed = self._veil.changed()
        if changed is not None:
            raise Trick(
                f"outputs of call {changed + 1} of {len(calls)} changed after its call was over: "
                "a later call wrote there, or work that nobody waited for"
            )
        claims = self._claims(calls, queued, is_cupti)
        if request.is_first:
            claims = [replace(claim, enqueue_ns=enqueue_ns) for claim in claims]
        return wire.pack_claims(request.nonce, claims)

    def record(self, request: Request, recorder: Recorder, fd: int) -> None:
        """Write to `fd` what each call of a request has the GPU do, once all of it is loaded and compiled."""
        self.nonce = request.nonce
        candidate, context = self.candidate, self._gpu.context
        calls = [
            candidate.prepare(index, *self.layout.unpack(words)) for index, words in enumerate(request.slots)
        ]
        self._warm_up(calls[0])
        recorded = []
        for call in calls:
            work = partial(candidate.enqueue, call)
            recorded.append(recorder.record(self._arena.address, self._arena.size, work))
            context.synchronize()
        recorder.write(fd, self._arena.address, recorded)

    def _wait_ns(self, lead_ns: int, busy_ns: int, more_ns: int) -> int:
        """Return how long the GPU has to wait so that a call begins `lead_ns` from now at the earliest.

        It is busy with earlier slots for `busy_ns`. Where the judge's clock bounds the claims, every slot
        waits as long as the judge said, for it must know how long that was.
        """
        return max(0, lead_ns + more_ns - busy_ns - self._flush_ns) if self._is_ours else lead_ns

    def _warm_up(self, call: Any) -> int:
        """Load and compile all of a call; return the nanoseconds that it takes to queue it from then on."""
        for _ in range(1 if self._is_ours else 2):
            enqueue_ns, _ = self._queue(call, 0, 0)
            self._gpu.context.synchronize()
        self._gpu.take()
        return enqueue_ns

    def _queue(self, call: Any, index: int, wait_ns: int) -> tuple[int, bool]:
        """Queue one slot; return what that took, and whether the GPU had to wait for it."""
        gpu, candidate = self._gpu, self.candidate
        if index == len(self._events):
            self._events.append((Event(), Event()))
        start, stop = self._events[index]
        candidate.poison(call)
        begun_ns = time.perf_counter_ns()
        gpu.spin(wait_ns)
        self._veil.show(index)
        gpu.flush(dirty=self._is_dirty)
        gpu.open()
        start.record(gpu.stream)
        candidate.enqueue(call)
        stop.record(gpu.stream)
        enqueue_ns = time.perf_counter_ns() - begun_ns
        is_late = is_over(start)
        gpu.close()
        candidate.finish(call)
        return enqueue_ns, is_late

    def _claims(self, calls: list[Any], queued: list[tuple[int, bool]], is_cupti: bool) -> list[Claim]:
        """Read the clocks of the calls that were queued."""
        seen: Sequence[Span | None] = self._spans(len(queued)) if is_cupti else [None] * len(queued)
        claims = []
        for (start, stop), (enqueue_ns, is_late), span in zip(self._events, queued, seen, strict=False):
            ns = max(1, round(stop.us_since(start) * 1e3))
            if span is None:
                claims.append(Claim(ns, 0, enqueue_ns, -1, 0, self.candidate.blocks(calls[0]), is_late))
            else:
                counted = (span.activities, span.signature, span.blocks)
                claims.append(Claim(span.ns or ns, ns, enqueue_ns, *counted, is_late))
        return claims

    def _spans(self, count: int) -> list[Span]:
        """Return what CUPTI saw of the last calls."""
        records, queued = self._gpu.take()
        if self._is_ours:
            return spans(records, count)[0]
        try:
            found, outside = spans(records, count)
        except Unreadable as error:
            raise Trick(f"what CUPTI saw is not all that we did, or more: {error}") from None
        copies = self.layout.outputs * count if self._head["returns_outputs"] else 0
        strays = outside - queued - copies
        if strays > 0 and not self._head["converts_outputs"]:
            raise Trick(f"{strays} kernels, copies or fills ran outside its calls")
        for number, span in enumerate(found, 1):
            if max(span.early_ns, span.late_ns) > OUTSIDE_NS:
                raise Trick(
                    f"call {number} was at work {span.early_ns / 1e3:.1f} us before it was to begin and "
                    f"{span.late_ns / 1e3:.1f} us after it was to be over"
                )
        return found

    def _tensors(self, arguments: Sequence[int | float], axes: Mapping[str, int]) -> Tensors:
        ranges = [
            (self._arena.address + int(value), self.layout.nbytes(at, axes))
            for at, value in enumerate(arguments)
            if self.layout.shapes[at] is not None
        ]
        cut = len(ranges) - self.layout.outputs
        return Tensors(tuple(ranges[:cut]), tuple(ranges[cut:]))


def _limit_memory(nbytes: int) -> None:
    """Let this process have so much more private memory than it has now."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        now_kib = next(int(line.split()[1]) for line in file if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = now_kib * 1024 + nbytes
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))
