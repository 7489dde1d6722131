"""The GPU as a runner uses it: our own kernels around a call, and the two clocks."""

from __future__ import annotations

import ctypes
import statistics
import struct

from swarm.judge.cuda import driver
from swarm.judge.cuda.activities import Activities
from swarm.judge.cuda.driver import Dim, Event, Function, Packed
from swarm.judge.cuda.spans import Record
from swarm.judge.cuda.veil import Veil

FLUSH_FACTOR = 2
"""Of the L2's size, written and then read, each in memory of its own."""
FLUSH_THREADS, FLUSH_BLOCKS_PER_SM = 256, 8
CALIBRATIONS, CALIBRATION_BYTES, CALIBRATION_LEAD_NS = 33, 8 << 20, 100_000
"""How often a short kernel is timed by both clocks, and what it writes with all multiprocessors: it is to be
like a candidate's, not like an empty one."""
FLUSHES, PRIMINGS = 3, 2
ONE = (1, 1, 1)


class Gpu:
    """The device, our own kernels on it, and the two clocks."""

    def __init__(self, uuid: str, cubin: bytes, *, is_legacy: bool) -> None:
        """`is_legacy` puts all work into the legacy default stream, as code on the host expects."""
        self.context = driver.Context(uuid)
        self.stream = LegacyStream() if is_legacy else driver.Stream()
        self._module = module = self.context.load(cubin)
        self.queued = 0
        """Kernels, copies and fills of our own since the last `take`, without the marks."""
        self._spin, self._spin_ns = module.function("swarm_spin"), Packed(bytes(8))
        self._open, self._close = module.function("swarm_open"), module.function("swarm_close")
        self._nothing = Packed(b"")
        size = FLUSH_FACTOR * max(self.context.facts.l2_bytes, 1 << 20) // 256 * 256
        written, read = self.context.allocate(size), self.context.allocate(size)
        write = module.function("swarm_flush_write")
        self._flushes = [
            (write, Packed(struct.pack("<QQ", written, size))),
            (module.function("swarm_flush_read"), Packed(struct.pack("<QQ", read, size))),
        ]
        self._probe = (write, Packed(struct.pack("<QQ", written, min(size, CALIBRATION_BYTES))))
        self._flush_grid = (self.context.facts.num_sms * FLUSH_BLOCKS_PER_SM, 1, 1)
        self.veil = Veil(self)
        self.activities = Activities()
        self.event_offset_ns = self._event_offset_ns()
        """What events read beyond the time of what lies between them."""
        self._flush_ns = [self._measured_flush_ns(dirty=False), self._measured_flush_ns(dirty=True)]

    def spin(self, ns: int) -> None:
        """Queue a wait."""
        ctypes.c_uint64.from_address(self._spin_ns.address).value = ns
        self.queue(self._spin, ONE, ONE, self._spin_ns)

    def flush(self, *, dirty: bool) -> None:
        """Queue what makes the L2 cold: full of lines that are only read, unless `dirty`."""
        for function, params in self._flushes[: 1 if dirty else 2]:
            self.queue(function, self._flush_grid, (FLUSH_THREADS, 1, 1), params)

    def function(self, symbol: str) -> Function:
        """Return one of our own kernels."""
        return self._module.function(symbol)

    def queue(self, function: Function, grid: Dim, block: Dim, params: Packed) -> None:
        """Queue a kernel of our own, outside of the marks."""
        self.queued += 1
        function.launch(grid, block, params, self.stream)

    def set_bytes(self, address: int, byte: int, nbytes: int) -> None:
        self.queued += 1
        self.stream.set_bytes(address, byte, nbytes)

    def copy_to_host(self, host: int, address: int, nbytes: int) -> None:
        self.queued += 1
        self.stream.download(host, address, nbytes)

    def take(self) -> tuple[list[Record], int]:
        """Return what CUPTI saw since the last time, and how much of it was ours, without the marks."""
        queued, self.queued = self.queued, 0
        return self.activities.take(), queued

    def open(self) -> None:
        self._open.launch(ONE, ONE, self._nothing, self.stream)

    def close(self) -> None:
        self._close.launch(ONE, ONE, self._nothing, self.stream)

    def switch(self, *, cupti: bool) -> bool:
        """Let CUPTI see what runs from now on, or no longer; return whether it has just come on."""
        self.queued = 0
        if not self.activities.switch(cupti) or not cupti:
            return False
        for _ in range(PRIMINGS):  # it asks for its buffers when there is something to record
            self.open()
            self.close()
            self.context.synchronize()
            self.take()
        return True

    def reset_persisting_l2(self) -> None:
        """Make lines that earlier calls asked to keep ordinary again, where the GPU has such lines.

        Once for a request, as no stream orders it: its slots have no tensor in common.
        """
        if self.context.facts.max_persisting_l2_bytes:
            self.context.reset_persisting_l2()

    def flush_ns(self, *, dirty: bool) -> int:
        """Return what a flush takes at least."""
        return self._flush_ns[dirty]

    def _event_offset_ns(self) -> float:
        pairs = [(Event(), Event()) for _ in range(CALIBRATIONS)]
        for _ in range(2):  # the first round finds everything cold
            self.activities.switch(True)
            self._calibrate(pairs)
            seen = [r.end_ns - r.start_ns for r in self.activities.take() if r.name == "swarm_flush_write"]
            self.activities.switch(False)
            self._calibrate(pairs)
        by_events = [stop.us_since(start) * 1e3 for start, stop in pairs]
        return statistics.median(by_events) - statistics.median(seen)

    def _measured_flush_ns(self, *, dirty: bool) -> int:
        start, stop = Event(), Event()
        found = []
        for _ in range(FLUSHES):
            self.spin(CALIBRATION_LEAD_NS)
            start.record(self.stream)
            self.flush(dirty=dirty)
            stop.record(self.stream)
            self.context.synchronize()
            found.append(stop.us_since(start) * 1e3)
        return round(min(found))

    def _calibrate(self, pairs: list[tuple[Event, Event]]) -> None:
        function, params = self._probe
        for start, stop in pairs:
            self.spin(CALIBRATION_LEAD_NS)
            self.open()
            start.record(self.stream)
            function.launch((self.context.facts.num_sms, 1, 1), (FLUSH_THREADS, 1, 1), params, self.stream)
            stop.record(self.stream)
            self.close()
        self.context.synchronize()


class LegacyStream(driver.Stream):
    """The legacy default stream: all ordinary streams of a host program wait for it, and it for them."""

    def __init__(self) -> None:
        self.handle = driver.bindings().CUstream(0)


def is_over(event: Event) -> bool:
    """Whether the GPU has passed an event."""
    bindings = driver.bindings()
    error = bindings.cuEventQuery(event.handle)[0]
    if error == bindings.CUresult.CUDA_ERROR_NOT_READY:
        return False
    driver.check((error,), "cuEventQuery")
    return True
