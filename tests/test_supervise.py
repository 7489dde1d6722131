"""Roles are started again when they die, stopped within bounds, and never outlive the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from swarm.cli.supervise import RESTARTS, Ended, Role, Supervisor

OBEDIENT = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('up', flush=True)"
FOREVER = f"{OBEDIENT}\nwhile True: time.sleep(0.05)"
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: time.sleep(0.05)"
)
ROOT = Path(__file__).parent.parent


@pytest.fixture
def supervise(tmp_path: Path) -> Callable[..., Supervisor]:
    def build(**programs: str) -> Supervisor:
        roles = [Role(name, (program,), essential=True) for name, program in programs.items()]
        return Supervisor(roles, logs=tmp_path / "logs", cwd=tmp_path, command=(sys.executable, "-c"))

    return build


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def up(tmp_path: Path, name: str, times: int = 1) -> Callable[[], bool]:
    log = tmp_path / "logs" / f"{name}.log"
    return lambda: log.is_file() and log.read_text().count("up") >= times


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Return what finds the processes that were started since."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [one for one in psutil.Process().children(recursive=True) if one not in before]


def next_end(supervisor: Supervisor) -> Ended:
    ended: list[Ended] = []
    wait_for(lambda: bool(ended.extend(supervisor.check()) or ended))
    return ended[0]


def test_a_killed_role_is_started_again(
    supervise: Callable[..., Supervisor], children: Callable[[], list[psutil.Process]], tmp_path: Path
) -> None:
    with supervise(watch=FOREVER) as supervisor:
        wait_for(up(tmp_path, "watch"))
        os.kill(children()[0].pid, signal.SIGKILL)
        end = next_end(supervisor)
        assert (end.role.name, end.how, end.restarted) == ("watch", "was killed by SIGKILL", True)
        wait_for(up(tmp_path, "watch", times=2))
        assert supervisor.alive() == ("watch",)


def test_a_role_that_gives_up_is_not_started_again_and_its_reason_is_told(
    supervise: Callable[..., Supervisor],
) -> None:
    with supervise(
        watch="print('noise'); print('swarm: results/: disk full; free some'); exit(1)"
    ) as supervisor:
        end = next_end(supervisor)
        assert (end.how, end.restarted) == ("results/: disk full; free some", False)
        assert supervisor.alive() == ()


def test_a_role_that_keeps_crashing_stays_dead(supervise: Callable[..., Supervisor]) -> None:
    with supervise(plan="exit(3)") as supervisor:
        ends = [next_end(supervisor) for _ in range(RESTARTS + 1)]
        assert [end.restarted for end in ends] == [True] * RESTARTS + [False]
        assert "exit code 3" in ends[-1].how


def test_stop_ends_the_named_roles_only(
    supervise: Callable[..., Supervisor], children: Callable[[], list[psutil.Process]], tmp_path: Path
) -> None:
    with supervise(a=FOREVER, b=FOREVER) as supervisor:
        wait_for(up(tmp_path, "a"))
        wait_for(up(tmp_path, "b"))
        assert supervisor.stop(["a"]) == []
        assert supervisor.alive() == ("b",)
    assert children() == []


def test_a_deaf_role_and_its_children_are_killed(
    supervise: Callable[..., Supervisor], children: Callable[[], list[psutil.Process]], tmp_path: Path
) -> None:
    program = f"import subprocess, sys; subprocess.Popen(['sleep', '600'])\n{DEAF}"
    with supervise(watch=program) as supervisor:
        wait_for(up(tmp_path, "watch"))
        assert supervisor.stop(["watch"], timeout_s=0.2) == ["watch"]
    wait_for(lambda: not any(child.is_running() for child in children()))


def test_roles_end_when_the_run_is_killed(tmp_path: Path) -> None:
    role = "from swarm.cli.leash import take_leash; take_leash(); import time; time.sleep(600)"
    code = (
        "import sys, time; from pathlib import Path; from swarm.cli.supervise import Role, Supervisor\n"
        f"role = Role('watch', ({role!r},), True)\n"
        f"root = Path({str(ROOT)!r})\n"
        "with Supervisor([role], logs=Path('logs'), cwd=root, command=(sys.executable, '-c')):\n"
        "    print('up', flush=True); time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path, env=environment
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == b"up\n"
        wait_for(lambda: bool(psutil.Process(run.pid).children()))
        [orphan] = psutil.Process(run.pid).children()
        time.sleep(0.3)  # whether the leash is on already or not: both must end it
        run.kill()
        wait_for(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
