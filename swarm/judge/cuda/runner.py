"""The judge's end of a runner on a GPU: the sandboxed process that executes one candidate.

It has the surface of the CPU's runner: a call is a list of slots, the answer is the nanoseconds claimed for
each, or how it failed. Where a candidate is only device code the claims are read by our own code; where it
has code on the host they are bounded by the judge's clock and a control, and between calls its process is
stopped.
"""

from __future__ import annotations

import random
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from swarm.errors import Refused
from swarm.judge import tasks
from swarm.judge.cuda import clocks
from swarm.judge.cuda.artifacts import content, layout_of
from swarm.judge.cuda.clocks import Clocks, Key
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.process import Host, Process
from swarm.judge.cuda.spans import OWN
from swarm.judge.cuda.spares import Spares
from swarm.judge.cuda.wire import (
    FAILED,
    FAULT,
    MAX_SLOTS,
    NONCE_BYTES,
    READY,
    TRICK,
    UNLOAD,
    Claim,
    Clock,
    Request,
    pack_load,
    unpack_claims,
)
from swarm.judge.runner import Slot
from swarm.languages.protocol import Artifact, Failure, Kind
from swarm.problem import Problem
from swarm.verdict import Status

LOAD_S = {Host.BARE: 30.0, Host.NATIVE: 30.0, Host.TORCH: 120.0}
FIRST_CALL_S = {Host.BARE: 0.0, Host.NATIVE: 0.0, Host.TORCH: 60.0}
"""More for the first call of a workload: Python compiles its kernels then."""
CONTROL_BYTES = 8 << 30
UNSEEN_FACTOR, UNSEEN_NS = 1.5, 20_000
"""How much more of a call CUPTI may see than events do, which see one stream."""
LOOKED_AT_SHARE = 1 / 24
"""Of the requests to host code: there CUPTI looks on where events time it, and its box is looked through."""
RECENT = 32
"""Calls whose queueing says how long the next ones take to queue."""
SLOWEST = 0.9
SECONDS = 1e-9
JITTER_NS, SLOT_JITTER_NS = 300_000, 25_000
"""Of a request and of each of its slots: what Python and CUPTI's records take, more or less, from one process
to another. The judge's clock is to find gross lies; a wait and a flush before each call hide as much."""


class CudaRunner:
    """Ready at the first call, gone when closed. After a failure it only repeats it."""

    def __init__(
        self,
        artifact: Artifact | Kind,
        problem: Problem,
        arena: DeviceArena,
        spares: Spares,
        clocks: Clocks,
        *,
        memory_bytes: int,
        timeout_s: float,
        dirty: bool = False,
        side: int | None = 0,
        before: Callable[[], None] | None = None,
        once_closed: Callable[[int], None] | None = None,
        process: Process | None = None,
        place: int = 0,
    ) -> None:
        """Take a spare runner for `artifact`; a mere kind is a candidate that does nothing.

        `memory_bytes` are what the candidate may use on the host. `side` tells apart, in `clocks`, whose
        times are compared; None is nobody's. `before` is called before each request, and `once_closed` with
        the id of the process once it is gone, to see that it is gone from the GPU, too. A `process` that is
        given is used instead of a spare one, and may hold a candidate in each of several places.
        """
        self._artifact = artifact
        self._kind = artifact if isinstance(artifact, Kind) else artifact.kind
        self._host = Host.of(self._kind)
        self._layout = layout_of(problem)
        self._problem = problem
        self._arena = arena
        self._clocks = clocks
        self._side = side
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._is_dirty = dirty
        self._place = place
        self._failure: Failure | None = None
        self._is_loaded = False
        self._begun: set[Key] = set()
        self._seen: dict[Key, tuple[int, int]] = {}
        self._enqueue_ns: deque[int] = deque(maxlen=RECENT)
        self._last_clock = Clock.EVENTS
        self._rng = random.SystemRandom()
        self.wall_ns = 0
        """From sending the last request to its answer by the judge's clock, less the waits that it asked for
        and, where a control is to be held against it, what jitters on the host."""
        self.busy_ns = 0
        """Nothing to ask for: the work is the GPU's, and our own code waits for it."""
        self.claims: list[Claim] = []
        """What the runner said of the last request."""
        self.late = 0
        """Calls so far whose span began before they were queued."""
        self._before = before
        self._once_closed = once_closed
        self._spares = spares
        self._process = process or spares.take(self._host)

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
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def clock(self) -> str:
        """Name the clock that the last claims were read from."""
        return clocks.NAMES[self._last_clock]

    def ready(self) -> Failure | None:
        """Wait until the candidate is loaded; return how that failed, if it did."""
        if self._failure is None and not self._is_loaded:
            self._spares.wait_for(self._process)
            self._clocks.settle(self._spares.offset_ns)
            answer = self._load()
            if answer == READY:
                self._is_loaded = True
                self._stop()
            elif isinstance(answer, Failure):
                self._failure = replace(answer, reason=f"{answer.reason}, while it was being loaded")
            else:
                self._failure = self._told(answer, b"")
        return self._failure

    def call(self, slots: Sequence[Slot], timeout_s: float | None = None) -> list[int] | Failure:
        """Run the candidate once per slot; return the nanoseconds it claims for each.

        The limit is for the whole request. All slots are of one workload; what the first request of a
        workload takes says which clock suits it, and is best discarded.
        """
        if not 0 < len(slots) <= MAX_SLOTS:
            raise ValueError(f"{len(slots)} slots; 1 to {MAX_SLOTS} are possible")
        if failure := self.ready():
            return failure
        key: Key = tuple(sorted(slots[0].axes.items()))
        choice = self._clocks.of(slots[0].axes)
        is_first = key not in self._begun
        clock = self._first_clock if is_first else choice.clock
        is_looked_at = self._is_doubted and self._rng.random() < LOOKED_AT_SHARE
        if is_looked_at and clock is Clock.EVENTS:
            clock = Clock.CUPTI
            self._clocks.spoil()
        spin_ns = clocks.spin_ns(self._slowest_enqueue_ns())
        request = Request(
            secrets.token_bytes(NONCE_BYTES),
            clock,
            spin_ns,
            is_first,
            tuple(self._layout.pack((*slot.inputs, *slot.outputs), slot.axes) for slot in slots),
            self._place,
        )
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        waits_s = len(slots) * spin_ns * SECONDS + (FIRST_CALL_S[self._host] if is_first else 0.0)
        answer = self._exchange(request, limit_s, waits_s)
        passed_ns = self.wall_ns
        if self._kind is not Kind.PLAN:  # a plan's runner need not wait as long as it may
            self.wall_ns -= len(slots) * spin_ns
        if isinstance(self._artifact, Artifact):
            self.wall_ns -= JITTER_NS + len(slots) * SLOT_JITTER_NS
        if isinstance(answer, Failure):
            self._failure = answer  # and its process is gone: its id may be another's by now
            return answer
        self._stop()
        if self._is_doubted and (is_first or is_looked_at):
            self._failure = tasks.company(self._process.others(), self.log)
            if self._failure is not None:
                return self._failure
        claims = unpack_claims(answer, request.nonce, len(slots))
        if claims is None:
            self._failure = self._told(answer, request.nonce)
            return self._failure
        self._begun.add(key)
        if clock is Clock.EVENTS:
            claims = [replace(c, ns=max(1, c.ns - round(self._clocks.offset_ns))) for c in claims]
        self.claims, self._last_clock = claims, clock
        self._failure = self._contradiction(key, claims, passed_ns, is_first=is_first)
        if self._failure is not None:
            return self._failure
        if is_first and self._side is not None:
            choice.observe(self._side, min(c.ns for c in claims), claims[0].blocks)
        if is_first:
            self._enqueue_ns.clear()
        else:
            self.late += sum(c.is_late for c in claims)
        # One that waits for the GPU while it is queued is late however long the GPU waits for it.
        self._enqueue_ns.extend(c.enqueue_ns for c in claims if is_first or not c.is_late)
        return [claim.ns for claim in claims]

    def unload(self) -> bool:
        """Let the process forget the candidate and unmap the arena; False if it does not answer."""
        self._is_loaded = False
        self._continue()
        return self._process.send(UNLOAD) is None and self._process.receive(LOAD_S[self._host]) == READY

    def linger(self, seconds: float) -> None:
        """Let it go on without a request, for what it may have left undone."""
        if self._failure is None:
            self._continue()
            time.sleep(seconds)
            self._stop()

    def close(self) -> None:
        """Kill everything the candidate started, and wait until it is gone."""
        self._process.close()
        if self._once_closed is not None and self.pid is not None:
            self._once_closed(self.pid)

    def _load(self) -> bytes | Failure:
        files, entry, returns, converts = {}, "", False, False
        if isinstance(self._artifact, Artifact):
            files, entry = content(self._artifact.path), self._artifact.entry
            returns = self._artifact.returns_outputs
            converts = self._artifact.converts_outputs
            ours = next((k.symbol for k in self._artifact.kernels if k.symbol.startswith(OWN)), None)
            if ours is not None:
                return Failure(
                    Status.INVALID_SOLUTION, f"kernel {ours}: names that start with {OWN} are the judge's"
                )
        head = {
            "kind": self._kind,
            "place": self._place,
            "entry": entry,
            "is_empty": isinstance(self._artifact, Kind),
            "returns_outputs": returns,
            "converts_outputs": converts,
            "layout": self._layout.to_json(),
            "arena_bytes": self._arena.size,
            "memory_bytes": self._memory_bytes,
            "dirty": self._is_dirty,
        }
        self._continue()
        failure = self._process.send(pack_load(head, files), (self._arena.fd,))
        return failure or self._process.receive(LOAD_S[self._host])

    def _exchange(self, request: Request, limit_s: float, waits_s: float) -> bytes | Failure:
        data = request.pack()
        if self._before is not None:
            self._before()
        self._continue()
        start_ns = time.monotonic_ns()
        answer = self._process.send(data) or self._process.receive(limit_s, waits_s=waits_s)
        self.wall_ns = time.monotonic_ns() - start_ns
        return answer

    def _contradiction(
        self, key: Key, claims: Sequence[Claim], passed_ns: int, *, is_first: bool
    ) -> Failure | None:
        """Return what cannot be true in what the runner says."""
        total_ns = sum(claim.ns for claim in claims)
        if min(claim.ns for claim in claims) <= 0 or total_ns > passed_ns:
            told = [claim.ns for claim in claims]
            return Failure(Status.REWARD_HACK, f"the runner claims {told} ns within {passed_ns} ns", self.log)
        if self._last_clock is Clock.CUPTI and self._kind is not Kind.PLAN:
            traced_ns, on_stream_ns = max(c.ns for c in claims), max(c.other_ns for c in claims)
            if traced_ns > UNSEEN_FACTOR * on_stream_ns + UNSEEN_NS:
                return Failure(
                    Status.REWARD_HACK,
                    f"a call takes {traced_ns / 1e3:.1f} us on the GPU, but only {on_stream_ns / 1e3:.1f} us "
                    "on the stream that it was given: nobody waits for the rest",
                    self.log,
                )
        for claim in claims if self._last_clock is Clock.CUPTI else ():
            told_now = (claim.activities, claim.signature)
            before = self._seen.setdefault(key, told_now)
            if told_now != before:
                what = (
                    f"{claim.activities} kernels, copies and fills after {before[0]}"
                    if claim.activities != before[0]
                    else "other kernels than before"
                )
                return Failure(Status.REWARD_HACK, f"not all calls do the same work: {what}", self.log)
        return None

    def _told(self, answer: bytes, nonce: bytes) -> Failure:
        """Read an answer that is neither claims nor a readiness: a failure, a fault of ours, or a forgery."""
        for tag in (FAILED, TRICK, FAULT):
            if not answer.startswith(tag + nonce):
                continue
            reason = answer.removeprefix(tag + nonce).decode("utf-8", "replace").strip()
            if tag == FAULT and (self._kind is Kind.PLAN or not self._is_loaded):
                raise Refused(f"the runner failed by itself: {reason}")
            status = Status.REWARD_HACK if tag == TRICK else Status.RUNTIME_ERROR
            return Failure(status, reason, self.log)
        return Failure(Status.REWARD_HACK, "something other than the runner answered the judge", self.log)

    @property
    def _first_clock(self) -> Clock:
        """What shows all streams of host code; for a plan whichever is on: it takes time to switch them."""
        return self._last_clock if self._kind is Kind.PLAN else Clock.CUPTI

    @property
    def _is_doubted(self) -> bool:
        """Whether a candidate's code runs on the host."""
        return self._kind is not Kind.PLAN and isinstance(self._artifact, Artifact)

    def _slowest_enqueue_ns(self) -> int:
        if not self._enqueue_ns:
            return 0
        return sorted(self._enqueue_ns)[int(SLOWEST * (len(self._enqueue_ns) - 1))]

    def _stop(self) -> None:
        if self._kind is not Kind.PLAN:
            self._process.signal(signal.SIGSTOP)

    def _continue(self) -> None:
        if self._kind is not Kind.PLAN:
            self._process.signal(signal.SIGCONT)


class CudaControl:
    """An empty candidate in a runner like the candidate's, called with the candidate's own slots.

    Its process outlives the jobs: `at` takes it to another job's table, `leave` away from there.
    """

    busy_us = 0.0

    def __init__(self, kind: Kind, spares: Spares) -> None:
        self._kind = kind
        self._spares = spares
        self._process: Process | None = None
        self._runner: CudaRunner | None = None

    def at(
        self,
        problem: Problem,
        arena: DeviceArena,
        clocks: Clocks,
        *,
        dirty: bool,
        timeout_s: float,
        before: Callable[[], None] | None = None,
    ) -> CudaControl:
        """Get ready for slots of `problem` in `arena`, timed by the clocks of the candidate."""
        if self._process is None:
            self._process = self._spares.take(Host.of(self._kind))
        self._runner = CudaRunner(
            self._kind,
            problem,
            arena,
            self._spares,
            clocks,
            memory_bytes=CONTROL_BYTES,
            timeout_s=timeout_s,
            dirty=dirty,
            side=None,
            before=before,
            process=self._process,
        )
        return self

    def overhead_us(self, slots: Sequence[Slot]) -> float:
        """Make one request beside a candidate's; return what the judge's clock saw beyond the claims."""
        assert self._runner is not None, "a control is at some table when it is asked"
        try:
            claims = self._runner.call(slots)
        except Refused:
            self.close()
            raise
        if isinstance(claims, Failure):
            self.close()
            raise Refused(f"the empty candidate failed: {claims.reason} {claims.log}")
        return (self._runner.wall_ns - sum(claims)) / 1e3

    def leave(self) -> None:
        """Unmap the arena: its memory is only free once nobody maps it."""
        if self._runner is not None and not self._runner.unload():
            self.close()
        self._runner = None

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = self._runner = None
