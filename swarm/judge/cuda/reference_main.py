"""A problem's reference on a GPU: the process of `swarm.judge.reference_main`, with children that use CUDA.

The parent never touches the driver, for CUDA does not survive a fork; each child makes its own context when
the first arena is mapped. Tensors are views of the judge's memory.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import torch

from swarm.judge.cuda.driver import Context
from swarm.judge.cuda.memory import MappedArena, TensorBytes
from swarm.judge.reference_main import Child, main

KEPT_BYTES = 8 << 30
"""Of freed memory that torch may keep for the next call: the candidate needs room as well."""


class CudaChild(Child):
    device = "cuda"

    def __init__(self, peer: socket.socket, threads: int) -> None:
        super().__init__(peer, threads)
        self._arenas: dict[str, MappedArena] = {}

    def do_map(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        name, arena = message["name"], MappedArena(Context(0), fds[0], message["size"])
        self._maps[name] = torch.as_tensor(TensorBytes(arena.address, arena.size), device="cuda")
        if name in self._arenas:
            self._arenas[name].close()
        self._arenas[name] = arena
        return {}

    def do_run(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Compute expected outputs; they are there when it answers."""
        begun = time.perf_counter()
        super().do_run(message, fds)
        torch.cuda.synchronize()
        spent_s = time.perf_counter() - begun
        if torch.cuda.memory_reserved() > KEPT_BYTES:
            torch.cuda.empty_cache()
        return {"seconds": spent_s}

    def do_custom(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        said = super().do_custom(message, fds)
        torch.cuda.synchronize()
        return said


if __name__ == "__main__":
    sys.exit(main(CudaChild))
