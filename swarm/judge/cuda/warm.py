"""What a runner with torch does while it waits: what Triton compiles for itself before any first kernel.

Triton builds its access to the driver with a C compiler, and loads LLVM and ptxas, which takes seconds; all
of it lands in the caches of this box alone, before there is a candidate in it.
"""

from __future__ import annotations

import importlib
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def import_ahead() -> None:
    """Import what needs no GPU, which is most of what takes seconds."""
    importlib.import_module("torch")
    with suppress(ImportError):  # a candidate that needs it says so in its own words
        importlib.import_module("triton.compiler")


def warm_up(control: socket.socket) -> None:
    """Go on until the judge has something to say, or something of it is not to be had here."""
    for step in (_torch, _triton_driver, _triton_kernel):
        if select.select([control], [], [], 0)[0]:
            return
        try:
            step()
        except Exception:  # a candidate that needs what is missing here says so in its own words
            return


def _torch() -> None:
    torch: Any = importlib.import_module("torch")
    torch.empty(1, device="cuda")


def _triton_driver() -> None:
    triton: Any = importlib.import_module("triton")
    triton.runtime.driver.active.get_current_target()


def _triton_kernel() -> None:
    torch: Any = importlib.import_module("torch")
    triton: Any = importlib.import_module("triton")
    jit: Callable[[Any], Any] = triton.jit
    jit(nothing)[(1,)](torch.empty(1, device="cuda"))


def nothing(at):  # type: ignore[no-untyped-def]
    """Do nothing on the GPU."""
