"""Calls one candidate once on the GPU, for a profiler that looks at this process: `profile_main.py FOLDER`.

FOLDER holds `profile.json`, the candidate's files and the content of its arguments; `cuProfilerStart` and
`Stop` enclose the call, which comes after one that is only there to load and compile. Runs in a sandbox, as
the candidate may have code on the host.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SPEC, LOAD, CONTENT = "profile.json", "load", "content"
PIECE = 64 << 20


def main() -> None:
    folder = Path(sys.argv[1])
    spec = json.loads((folder / SPEC).read_text())
    sys.path.extend(spec["site"])
    call_twice(folder, spec)


def call_twice(folder: Path, spec: dict[str, Any]) -> None:
    """Load the candidate and call it twice, the second time in the profiler's sight."""
    from swarm.judge.cuda import candidates, driver, wire
    from swarm.judge.cuda.gpu import LegacyStream
    from swarm.judge.cuda.session import CACHES

    for name, cache in CACHES.items():
        os.environ[name] = f"{os.environ['HOME']}/{cache}"
    if spec["needs_torch"]:
        torch: Any = importlib.import_module("torch")
        torch.set_grad_enabled(False)
        torch.cuda.init()
    context = driver.Context(0)
    stream = LegacyStream() if spec["legacy_stream"] else driver.Stream()
    arena = context.allocate(spec["arena_bytes"])
    with (folder / CONTENT).open("rb") as file:
        at = arena
        while piece := file.read(PIECE):
            stream.write(at, piece)
            at += len(piece)
    head, files = wire.unpack_load((folder / LOAD).read_bytes())
    layout = wire.Layout.from_json(head["layout"])
    gpu = SimpleNamespace(context=context, stream=stream)
    candidate = candidates.load(gpu, layout, arena, head, files)
    for is_watched in (False, True):
        call = candidate.prepare(0, spec["arguments"], spec["axes"])
        candidate.poison(call)
        context.synchronize()
        if is_watched:
            driver.call("cuProfilerStart")
        candidate.enqueue(call)
        context.synchronize()
        if is_watched:
            driver.call("cuProfilerStop")


if __name__ == "__main__":
    main()
