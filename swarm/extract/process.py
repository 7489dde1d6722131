"""Run a model's own code in a box, and take what it says about itself as data.

The box is that of a reference: no network, no environment, the system and the model's folder read-only. On a
GPU it holds that GPU's device nodes.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm import sandbox
from swarm.device import Device
from swarm.errors import BadInput, Refused
from swarm.extract.found import Findings, parse_findings
from swarm.judge.wire import Closed, receive, send
from swarm.locks import device_lock_path, held
from swarm.schema import read_json

SILENT_S = 1800.0
"""A large model is exported for minutes, and says nothing meanwhile."""
LOCK_S = 600.0
LOG_CHARS = 400


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which model, and what of it."""

    build: str
    """file.py:function, which returns a torch.nn.Module."""
    inputs: str
    """file.py:function, which returns what the model is called with."""
    top: int
    backward: bool = False
    readable: tuple[Path, ...] = ()
    """What else its code reads: weights, packages that lie elsewhere."""

    def __post_init__(self) -> None:
        for option, spec in (("MODEL", self.build), ("--inputs", self.inputs)):
            file, _, function = spec.rpartition(":")
            if not file or not function.isidentifier():
                raise BadInput(f"{spec!r} names no function", where=option, remedy="write file.py:function")
            if not Path(file).is_file():
                raise BadInput(f"no file {file!r}", where=option, remedy="write file.py:function")

    @property
    def files(self) -> tuple[Path, Path]:
        build, inputs = (Path(spec.rpartition(":")[0]).resolve() for spec in (self.build, self.inputs))
        return build, inputs

    def message(self, device: Device, threads: int) -> bytes:
        build, inputs = (
            f"{file}:{spec.rpartition(':')[2]}"
            for file, spec in zip(self.files, (self.build, self.inputs), strict=True)
        )
        asked = {"build": build, "example": inputs, "top": self.top, "backward": self.backward}
        return json.dumps(asked | {"device": device.kind, "threads": threads}).encode()


def find(wanted: Wanted, device: Device, tell: Callable[[str], None]) -> Findings:
    """Have a model traced, cut and timed; `tell` is told what goes on. BadInput if its code is at fault."""
    mine, theirs = socket.socketpair()
    with mine:
        with theirs:
            process = _spawn(wanted, device, theirs.fileno())
        with process:
            mine.settimeout(SILENT_S)
            try:
                send(mine, wanted.message(device, len(device.cores) if device.kind == "cpu" else 4))
                _until(mine, "ready", tell)
                with held(device_lock_path(device.uuid), timeout_s=LOCK_S, purpose="time a model"):
                    send(mine, b"go")
                    _until(mine, "measured", tell)
                return parse_findings(_until(mine, "found", tell))
            except Closed:
                said = process.log.strip()[-LOG_CHARS:]
                raise Refused(
                    f"the process that ran the model died: {said or 'it said nothing'}",
                    remedy="is there memory enough for it?",
                ) from None
            except TimeoutError:
                raise Refused(f"the process that ran the model said nothing for {SILENT_S:g} s") from None


def _until(peer: socket.socket, word: str, tell: Callable[[str], None]) -> bytes:
    """Return the first message with `word` in it."""
    while True:
        data, _ = receive(peer)
        said = read_json(data, "the extraction's process")
        if not isinstance(said, dict):
            continue
        if "error" in said:
            where, what = str(said.get("where", "")), str(said["error"])
            raise BadInput(what, where=where, remedy="correct it there")
        if word in said:
            return data
        if "say" in said:
            tell(str(said["say"]))


def _spawn(wanted: Wanted, device: Device, fd: int) -> sandbox.Process:
    from swarm.judge.reference import FOLDERS, LIMITS, ROOT  # torch, for what else is in there

    folders: Sequence[Path] = [*FOLDERS, *{file.parent for file in wanted.files}, *wanted.readable]
    environment = {"PYTHONPATH": str(ROOT), "USER": "swarm"}  # torch asks for a name
    nodes: list[Path] = []
    if device.kind == "cuda":
        from swarm.judge.cuda import nodes as host

        libraries, sites = host.library_folders(), host.site_folders()
        nodes = host.nodes(device.uuid)
        folders = [*folders, *libraries, *sites]
        environment |= {
            "PYTHONPATH": ":".join(map(str, [ROOT, *sites])),
            "CUDA_VISIBLE_DEVICES": device.uuid,
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }
    return sandbox.spawn(
        [sys.executable, "-P", "-B", "-m", "swarm.extract.child.main", str(fd)],
        limits=LIMITS,
        cores=device.cores,
        env=environment,
        readable=folders,
        devices=nodes,
        pass_fds=[fd],
    )
