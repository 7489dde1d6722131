"""Role processes: started, watched, started again when they die, stopped in order. No policy of the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from swarm.cli.leash import leash_environment
from swarm.environment import environment

RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""A role that dies more often than RESTARTS in this time stays dead: it would only burn the machine."""
STOP_S = 5.0
LOG_TAIL_BYTES = 4096
EXIT_SWARM_ERROR = 1


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a run; `arguments` are those of the `swarm` command."""

    name: str
    arguments: tuple[str, ...]
    essential: bool
    """Without it the run cannot go on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A role that is gone and stays so, or was started again."""

    role: Role
    how: str
    restarted: bool


@dataclass(slots=True)
class _Running:
    role: Role
    process: subprocess.Popen[bytes]
    starts: deque[float] = field(default_factory=deque)


class Supervisor:
    """The roles of one run as child processes; leaving the context stops whatever still runs."""

    def __init__(
        self, roles: Iterable[Role], *, logs: Path, cwd: Path, command: Sequence[str] | None = None
    ) -> None:
        """The roles may use the cores that this process may use now, whatever it confines itself to later."""
        self._roles = tuple(roles)
        self._logs = logs
        self._cwd = cwd
        self._cores = os.sched_getaffinity(0)
        self._command = tuple(command or (sys.executable, "-m", "swarm.cli.main"))
        self._running: dict[str, _Running] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        for role in self._roles:
            self._running[role.name] = _Running(role, self._spawn(role), deque([time.monotonic()]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(self.alive())

    def alive(self) -> tuple[str, ...]:
        return tuple(name for name, one in self._running.items() if one.process.poll() is None)

    def check(self) -> list[Ended]:
        """Return the roles that ended since the last call, each already started again if that may help."""
        ended = []
        for name, one in list(self._running.items()):
            code = one.process.poll()
            if code is None:
                continue
            how = self._how(name, code)
            if code in (0, EXIT_SWARM_ERROR) or not self._may_restart(one):
                del self._running[name]
                ended.append(Ended(one.role, how, restarted=False))
            else:
                _signal(one.process, signal.SIGKILL)  # what it left behind must not meet its successor
                one.process = self._spawn(one.role)
                ended.append(Ended(one.role, how, restarted=True))
        return ended

    def stop(self, names: Iterable[str], timeout_s: float = STOP_S) -> list[str]:
        """Ask the named roles to end, end those that do not, and return the names of the latter."""
        stopping = [self._running.pop(name) for name in names if name in self._running]
        for one in stopping:
            _signal(one.process, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        stubborn = []
        for one in stopping:
            try:
                one.process.wait(max(0.05, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                stubborn.append(one.role.name)
            _signal(one.process, signal.SIGKILL)  # the group: what the role itself left behind
            one.process.wait()
        return stubborn

    def _spawn(self, role: Role) -> subprocess.Popen[bytes]:
        with (self._logs / f"{role.name}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._command, *role.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._cwd,
                env=environment(**leash_environment(self._cores)),
                # Ctrl-C in a terminal goes to `swarm run` alone, which stops the roles in order.
                start_new_session=True,
            )

    def _may_restart(self, one: _Running) -> bool:
        now = time.monotonic()
        while one.starts and now - one.starts[0] > RESTART_WINDOW_S:
            one.starts.popleft()
        one.starts.append(now)
        return len(one.starts) <= RESTARTS + 1

    def _how(self, name: str, code: int) -> str:
        log = self._logs / f"{name}.log"
        if code == 0:
            return "ended by itself"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        said = _last_line(log)
        return said or f"ended with exit code {code}; see {log}"


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        if number is signal.SIGTERM:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # gone, or its pid is another's group by now
        pass


def _last_line(log: Path) -> str:
    """Return the last `swarm: ...` line of a role's log, which says why it gave up."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("swarm: ") for line in reversed(lines) if line.startswith("swarm: ")), "")
