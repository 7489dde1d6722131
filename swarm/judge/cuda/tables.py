"""Tables of rows that a kernel works through in one launch: how they get to the GPU, and what comes back."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence

from swarm.judge.cuda.driver import Context, Function, Packed, Stream
from swarm.judge.cuda.memory import Pinned

THREADS = 256
"""Of a block, in kernels.cu."""
FIRST_BYTES = 1 << 16
"""Of a buffer for tables or results; it grows as needed."""


class Table:
    """The rows of one launch, ready to be copied; one that is launched again is not copied again."""

    def __init__(self, rows: Sequence[bytes], tiles: Sequence[int]) -> None:
        """`tiles` says how many blocks' worth of work each row is."""
        firsts = [0, *itertools.accumulate(tiles)]
        self.count = len(rows)
        self.tiles = firsts.pop()
        joined = b"".join(rows)
        self.firsts_at = len(joined)
        self.data = joined + struct.pack(f"<{len(firsts)}I", *firsts)


class TableKernel:
    """A kernel that takes a table: how it is launched, and where its table and its results lie."""

    def __init__(
        self,
        function: Function,
        num_sms: int,
        table: Staging,
        canary: int | None,
        results: Staging | None = None,
    ) -> None:
        self.function = function
        self._most_blocks = num_sms * function.max_active_blocks(THREADS, 0)
        self._table, self._results = table, results
        self._canary = [] if canary is None else [canary]
        self._fields = struct.Struct(f"<{3 + len(self._canary) + (results is not None)}Q")
        self._packed = Packed(bytes(self._fields.size))

    def queue(self, table: Table, result_bytes: int, stream: Stream) -> None:
        """Launch it over a table; `result_bytes` per row come back."""
        if not table.tiles:
            return
        where = self._table.hold(table, stream)
        results = [] if self._results is None else [self._results.zeroed(result_bytes * table.count, stream)]
        counts = table.count | table.tiles << 32
        fields = self._fields.pack(where, where + table.firsts_at, counts, *self._canary, *results)
        ctypes.memmove(self._packed.address, fields, len(fields))
        grid = (min(table.tiles, self._most_blocks), 1, 1)
        self.function.launch(grid, (THREADS, 1, 1), self._packed, stream)
        if self._results is not None:
            self._results.download(result_bytes * table.count, stream)

    def results(self, table: Table, result_bytes: int) -> bytes:
        """Return what came back, after the stream was waited for."""
        assert self._results is not None, "it returns nothing"
        return self._results.read(result_bytes * table.count)


class Staging:
    """A buffer on the GPU and its pinned twin on the host; grows as needed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._host = Pinned(FIRST_BYTES)
        self._device = context.allocate(FIRST_BYTES)
        self._held: Table | None = None

    def hold(self, table: Table, stream: Stream) -> int:
        """Have a table on the GPU; return its address there."""
        if self._held is not table:
            self._reserve(len(table.data))
            self._host.view[: len(table.data)] = table.data
            stream.upload(self._device, self._host.address, len(table.data))
            self._held = table
        return self._device

    def zeroed(self, nbytes: int, stream: Stream) -> int:
        """Return the address of zeros on the GPU."""
        self._reserve(nbytes)
        stream.set_bytes(self._device, 0, nbytes)
        return self._device

    def download(self, nbytes: int, stream: Stream) -> None:
        stream.download(self._host.address, self._device, nbytes)

    def read(self, nbytes: int) -> bytes:
        return bytes(self._host.view[:nbytes])

    def _reserve(self, nbytes: int) -> None:
        if nbytes <= self._host.nbytes:
            return
        self._context.free(self._device)
        self._host.close()
        self._host = Pinned(2 * nbytes)
        self._device = self._context.allocate(2 * nbytes)
