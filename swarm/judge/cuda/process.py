"""A runner's process in its box, and the socket to it, from before it has a candidate to its end."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from swarm import sandbox
from swarm.device import Device
from swarm.errors import Refused
from swarm.judge import tasks
from swarm.judge import wire as framing
from swarm.judge.cuda import nodes
from swarm.judge.cuda.wire import FAULT, GO, HELLO, IDLE
from swarm.languages.protocol import Failure, Kind
from swarm.verdict import Status

MAIN = Path(__file__).with_name("runner_main.py")
PACKAGE = Path(__file__).resolve().parents[2]
END_S = 2.0
"""A process that has died is reported in milliseconds."""
SEND_S = 20.0
MAX_ANSWER = 65_536
CREDENTIALS = struct.Struct("iII")
SIGNALS = {
    "SIGKILL": " (killed by the kernel: out of memory)",
    "SIGXFSZ": " (it wrote too large a file)",
    "SIGXCPU": " (it used up its processor time)",
    "SIGSEGV": " (it touched memory that is not its own)",
    "SIGILL": " (an instruction this processor does not have)",
}


class Host(StrEnum):
    """What a runner has imported."""

    BARE = "bare"
    """Only the driver: for plans, which need no more than that."""
    NATIVE = "native"
    """Likewise, but its candidates have code on the host: all goes through the legacy default stream."""
    TORCH = "torch"

    @classmethod
    def of(cls, kind: Kind) -> Host:
        """Return what runs artifacts of a kind."""
        return {Kind.PLAN: cls.BARE, Kind.SHARED_OBJECT: cls.NATIVE}.get(kind, cls.TORCH)


START_S = {Host.BARE: 60.0, Host.NATIVE: 60.0, Host.TORCH: 180.0}
"""A context takes 0.3 s and torch 4 s, and up to a minute from a cold disk or on a busy host."""
LIMITS = {
    Host.BARE: sandbox.Limits(
        memory_bytes=16 << 30, file_bytes=64 << 20, processes=64, open_files=1024, scratch_bytes=64 << 20
    ),
    Host.NATIVE: sandbox.Limits(
        memory_bytes=64 << 30, file_bytes=256 << 20, processes=128, open_files=1024, scratch_bytes=1 << 30
    ),
    Host.TORCH: sandbox.Limits(
        memory_bytes=96 << 30, file_bytes=1 << 30, processes=512, open_files=4096, scratch_bytes=4 << 30
    ),
}
"""Generous, as nothing of a candidate runs yet; what it may use itself is set when it is loaded."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """What every runner on one GPU is started with."""

    device: Device
    cubin: bytes
    """The judge's own kernels."""
    nodes: tuple[Path, ...]
    """Of the device."""
    at: sandbox.Level | None = None
    site: tuple[Path, ...] = field(default_factory=lambda: tuple(nodes.site_folders()))
    libraries: tuple[Path, ...] = field(default_factory=lambda: tuple(nodes.library_folders()))


class Process:
    """A runner in its box, and the socket to it."""

    def __init__(self, shelf: Shelf, host: Host, shim: Path | None = None) -> None:
        """`shim` is preloaded, for a runner that records."""
        self.host = host
        self.pid: int | None = None
        self.offset_ns = math.nan
        """What events read too much there, once it is idle."""
        self._received = b""
        self._end: Failure | None = None
        """How it ended, once it has: nothing can be said to it or heard from it any more."""
        self._is_idle = self._is_going = False
        device = shelf.device
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        cubin = _memory_file(shelf.cubin)
        try:
            spec = {
                "control_fd": theirs.fileno(),
                "cubin_fd": cubin,
                "gpu": device.uuid,
                "needs_torch": host is Host.TORCH,
                "legacy_stream": host is not Host.BARE,
                "shim": str(shim),
                "site": [str(folder) for folder in [*shelf.site, PACKAGE.parent]],
            }
            self._process = sandbox.spawn(
                [os.path.realpath(sys.executable), "-I", "-S", str(MAIN), json.dumps(spec)],
                limits=LIMITS[host],
                cores=device.cores,
                env=_environment(device, shelf.libraries) | ({"LD_PRELOAD": str(shim)} if shim else {}),
                readable=[PACKAGE, *shelf.site, *shelf.libraries, *([shim] if shim else [])],
                devices=shelf.nodes,
                pass_fds=[theirs.fileno(), cubin],
                at=shelf.at,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
            os.close(cubin)

    @property
    def log(self) -> str:
        """The tail of what it has printed."""
        return self._process.log

    def has_ended(self) -> bool:
        """Whether it died while nobody looked."""
        readable = select.select([self._socket], [], [], 0)[0]
        return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)

    def go(self) -> None:
        """Let it turn to the GPU; before, it only imports, which disturbs no measurement there."""
        if not self._is_going:
            self._is_going = True
            self.send(GO)

    def wait_idle(self) -> None:
        """Wait until it can take a candidate; Refused if it did not come so far: that is our own fault."""
        self.go()
        while not self._is_idle:
            answer = self.receive(START_S[self.host])
            if isinstance(answer, Failure):
                raise Refused(f"a runner did not start: it {answer.reason}: {_last_line(answer.log)}")
            if answer.startswith(FAULT):
                raise Refused(f"a runner did not start: {answer[1:].decode('utf-8', 'replace')}")
            if answer.startswith(IDLE):
                self.offset_ns = float(json.loads(answer[len(IDLE) :])["offset_ns"])
                self._is_idle = True
            elif answer != HELLO:
                raise Refused(f"a runner started with {answer[:80]!r}")

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> Failure | None:
        """Send one message; return how the process ended, if nobody takes it any more."""
        if self._end is not None:
            return self._end
        self._socket.settimeout(SEND_S)
        try:
            framing.send(self._socket, data, fds)
        except framing.Closed:
            return self._ended()
        except TimeoutError:
            return self._timed_out(SEND_S)
        return None

    def receive(self, limit_s: float, *, waits_s: float = 0.0) -> bytes | Failure:
        """Wait for one message, keeping the tail of what the process prints meanwhile.

        `waits_s` are more that we asked for ourselves, and no part of the limit.
        """
        if self._end is not None:
            return self._end
        deadline = time.monotonic() + limit_s + waits_s
        watched = [self._socket.fileno(), self._process.log_fd]
        while True:
            message = self._message()
            if message is not None:
                return message
            ready, _, _ = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))
            if self._socket.fileno() in ready:
                if not self._read():
                    return self._ended()
                continue
            if not ready or time.monotonic() > deadline:  # some print without an end
                return self._timed_out(limit_s)
            if not self._process.drain():
                watched.remove(self._process.log_fd)

    def signal(self, number: int) -> None:
        """Send a signal to all of it."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def others(self) -> list[int]:
        """Return the other processes in its box, ended or not."""
        return [] if self.pid is None else tasks.beside(self.pid, self._process.pid)

    def close(self) -> None:
        """Kill everything in the box, and wait until it is gone."""
        self._socket.close()
        self._process.close()

    def _message(self) -> bytes | None:
        """Take one whole message from what was received; a longer one than any of ours ends as garbage."""
        size = framing.HEADER.size
        if len(self._received) < size:
            return None
        (length,) = framing.HEADER.unpack(self._received[:size])
        if length > MAX_ANSWER:
            message, self._received = self._received, b""
            return message
        if len(self._received) < size + length:
            return None
        message, self._received = self._received[size : size + length], self._received[size + length :]
        return message

    def _read(self) -> bool:
        try:
            data = self._socket.recv(MAX_ANSWER) if self.pid is not None else self._first_words()
        except ConnectionResetError:
            return False
        self._received += data
        return bool(data)

    def _first_words(self) -> bytes:
        """Read what our own code says at first, and of which process it is; descriptors are never taken."""
        data, ancillary, _, _ = self._socket.recvmsg(MAX_ANSWER, socket.CMSG_SPACE(CREDENTIALS.size))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                self.pid = CREDENTIALS.unpack(content)[0]
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return data

    def _timed_out(self, limit_s: float) -> Failure:
        self._process.close()
        self._end = Failure(Status.TIMEOUT, f"did not answer within {limit_s:g} s", self.log)
        return self._end

    def _ended(self) -> Failure:
        """Say how the process ended, when it was not to."""
        end = self._process.wait(END_S)
        self._process.close()
        if end is None:
            how = "closed its connection to the judge"
        else:
            how = f"ended by itself with {end}" if end.signal is None else f"died of {end}"
            how += SIGNALS.get(end.signal or "", "")
        self._end = Failure(Status.RUNTIME_ERROR, how, self.log)
        return self._end


def _environment(device: Device, libraries: Sequence[Path]) -> dict[str, str]:
    found = {
        "CUDA_VISIBLE_DEVICES": device.uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": str(max(1, len(device.cores))),
        "USER": "swarm",  # inductor asks for it, and there is no /etc/passwd
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if libraries:
        folders = ":".join(map(str, libraries))
        found |= {"LD_LIBRARY_PATH": folders, "TRITON_LIBCUDA_PATH": str(libraries[0])}
    return found


def _memory_file(data: bytes) -> int:
    """Return a descriptor of a file that only exists in memory."""
    fd = os.memfd_create("swarm-kernels", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _last_line(log: str) -> str:
    return log.strip().rpartition("\n")[2]
