"""The runner's end of a recording: it switches the preloaded shim on and off, and writes down what it saw.

A candidate shares this process, so nothing of it is believed; `replay_tape` reads it.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from typing import Any


class Recorder:
    """The shim that this process was started with."""

    def __init__(self, path: str) -> None:
        self._shim = ctypes.CDLL(path)  # no second copy: it was preloaded by this name
        self._shim.swarm_record_start.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
        self._shim.swarm_record_stop.restype = ctypes.c_char_p
        self._shim.swarm_record_image.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_size_t))
        self._shim.swarm_record_image.restype = ctypes.c_void_p

    def record(self, arena: int, nbytes: int, work: Callable[[], None]) -> dict[str, Any]:
        """Return what `work` has the GPU do; the judge's memory is known to be at `arena`."""
        self._shim.swarm_record_start(arena, nbytes)
        try:
            work()
        finally:
            text = self._shim.swarm_record_stop()
        found: dict[str, Any] = json.loads(text)
        return found

    def write(self, fd: int, arena: int, calls: list[dict[str, Any]]) -> None:
        """Write recorded calls, and the code that they launch, to a file."""
        numbers = sorted({step["image"] for call in calls for step in call["steps"] if "image" in step})
        images = {number: self._image(number) for number in numbers}
        head = {"arena": arena, "calls": calls, "images": [[n, len(code)] for n, code in images.items()]}
        view = memoryview(b"".join([json.dumps(head).encode(), b"\n", *images.values()]))
        while view:
            view = view[os.write(fd, view) :]

    def _image(self, number: int) -> bytes:
        nbytes = ctypes.c_size_t()
        address = self._shim.swarm_record_image(number, ctypes.byref(nbytes))
        return ctypes.string_at(address, nbytes.value)
