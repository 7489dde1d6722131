"""A program in its box, seen from outside: what it prints, how it ended, and its end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm.errors import Refused
from swarm.sandbox.limits import Exit

LOG_BYTES = 16_384
KILL_S = 10.0
DRAIN_READS = 64
LEFT_BEHIND = 2
"""Exit code of the launcher when its sweep found no end."""


class Tail:
    """The last bytes of a stream that may never end."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, data: bytes) -> None:
        self._bytes = (self._bytes + data)[-LOG_BYTES:]

    def __str__(self) -> str:
        return self._bytes.decode("utf-8", "replace")


class Process:
    """A program in its box; leaving the context kills all of it and proves it gone."""

    def __init__(
        self, popen: subprocess.Popen[bytes], leash: int, status_fd: int, scratch: Path | None
    ) -> None:
        self._popen = popen
        self._leash: int | None = leash
        self._status_fd = status_fd
        self._status = b""
        self._scratch = scratch
        self._log = Tail()
        assert popen.stdout is not None
        self.log_fd = popen.stdout.fileno()
        os.set_blocking(self.log_fd, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The launcher's: all that the box holds is below it."""
        return self._popen.pid

    @property
    def log(self) -> str:
        """The tail of what the program has printed so far."""
        if self._leash is not None:
            self._drain_all()
        return str(self._log)

    def drain(self) -> bool:
        """Take what is in the output pipe now, without waiting; False at its end."""
        try:
            data = os.read(self.log_fd, 65_536)
        except BlockingIOError:
            return True
        self._log.add(data)
        return bool(data)

    def wait(self, timeout_s: float) -> Exit | None:
        """Read output until the program and all it started have ended, or None after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        open_fds = [self.log_fd, self._status_fd]
        while self._status_fd in open_fds:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select(open_fds, [], [], max(0.0, left_s))
            if not ready or (left_s < 0 and self._status_fd not in ready):  # some print without an end
                return None
            if self.log_fd in ready and not self.drain():
                open_fds.remove(self.log_fd)
            if self._status_fd in ready:
                line = os.read(self._status_fd, 4096)
                self._status += line
                if not line:  # the launcher, too, has ended
                    open_fds.remove(self._status_fd)
        return self._exit()

    def close(self) -> None:
        """Kill the program and everything it started, and wait until that is gone."""
        if self._leash is None:
            return
        os.close(self._leash)
        self._leash = None
        try:
            left_behind = self._popen.wait(KILL_S) == LEFT_BEHIND
        except subprocess.TimeoutExpired:
            self._popen.kill()
            left_behind = True
        self._drain_all()
        self._popen.__exit__(None, None, None)
        os.close(self._status_fd)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if left_behind:
            raise Refused(
                f"processes of a sandbox outlive SIGKILL (launcher {self._popen.pid})",
                remedy="look for processes in state D; nothing can be measured until they are gone",
            )

    def _drain_all(self) -> None:
        """Take what is there, within bounds: some print faster than we read."""
        for _ in range(DRAIN_READS):
            if not select.select([self.log_fd], [], [], 0)[0] or not self.drain():
                break

    def _exit(self) -> Exit:
        word, _, rest = self._status.decode("utf-8", "replace").partition(" ")
        if word != "ended":
            self._drain_all()  # what bubblewrap cannot do it says there
            why = rest.strip() or str(self._log).strip() or "the launcher was killed"
            raise Refused(f"the sandbox did not start its program: {why[-400:]}")
        code = os.waitstatus_to_exitcode(int(rest))
        return Exit(code, None) if code >= 0 else Exit(None, signal.Signals(-code).name)
