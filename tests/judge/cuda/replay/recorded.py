"""Records a candidate in a process of its own, as a runner does: `recorded.py SPEC`, the shim preloaded."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import partial
from types import SimpleNamespace


def main() -> None:
    spec = SimpleNamespace(**json.loads(sys.argv[1]))
    sys.path.insert(0, spec.site)
    from swarm.judge.cuda.replay_recorder import Recorder

    assert "LD_PRELOAD" not in os.environ, "children need no shim"
    driver = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(spec.arena_bytes)) == 0
    arena = int(address.value)
    candidate = ctypes.CDLL(spec.candidate)
    with open(spec.code, "rb") as file:  # noqa: PTH123
        code = file.read()
    candidate.set_code(code, ctypes.c_size_t(len(code)))
    entry = getattr(candidate, spec.entry)
    recorder = Recorder(spec.shim)
    recorded = []
    for x, y in [spec.places[0], *spec.places]:
        pointers = ctypes.c_void_p(arena + x), ctypes.c_void_p(arena + y)
        work = partial(entry, *pointers, ctypes.c_int(spec.count))
        recorded.append(recorder.record(arena, spec.arena_bytes, work))
    recorder.write(1, arena, recorded[1:])  # the first is there to load and compile


if __name__ == "__main__":
    main()
