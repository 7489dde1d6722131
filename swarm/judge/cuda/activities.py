"""What ran on the GPU for this process, as CUPTI saw it: switched on for requests that it times, else off."""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

from swarm.judge.cuda.spans import MEMCPY, MEMSET, Record

BUFFER_BYTES = 1 << 20
LIBRARY = "nvidia/cu13/lib/libcupti.so.13"
"""Where a package has it; the bindings look there only in an interpreter that knows its site folders."""
FORCED = 1
"""CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also records in buffers that are not full."""


class Activities:
    """Kernels, copies and fills of this process. One per process: CUPTI has one pair of callbacks."""

    def __init__(self) -> None:
        self._cupti: Any = _bindings()
        kinds = self._cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._names = {int(kinds.MEMCPY): MEMCPY, int(kinds.MEMSET): MEMSET}
        self._records: list[Record] = []
        self._is_on = False
        self._cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)

    def switch(self, on: bool) -> bool:
        """Record from now on, or no longer, and say if that is new; the GPU is to be idle."""
        if on is self._is_on:
            return False
        change = self._cupti.activity_enable if on else self._cupti.activity_disable
        for kind in self._kinds:
            change(kind)
        self.take()
        self._is_on = on
        return True

    def take(self) -> list[Record]:
        """Return what ran since the last time; all of it is over."""
        if not self._is_on:
            return []
        self._cupti.activity_flush_all(FORCED)
        taken, self._records = self._records, []
        return taken

    def _completed(self, activities: list[Any]) -> None:
        for activity in activities:
            name = self._names.get(int(activity.kind))
            blocks = 0 if name else activity.grid_x * activity.grid_y * activity.grid_z
            self._records.append(
                Record(
                    name or activity.name,
                    activity.start,
                    activity.end,
                    activity.correlation_id,
                    blocks,
                )
            )


def _bindings() -> Any:
    """Return cupti-python; on a host that has torch alone, our own."""
    _load_library()
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError:
        return importlib.import_module("swarm.judge.cuda.cupti")


def _load_library() -> None:
    found = next((path for entry in sys.path if (path := Path(entry) / LIBRARY).is_file()), None)
    if found is not None:
        ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)
