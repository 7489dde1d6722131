"""The judge's clock accuses only where the cores were its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from swarm.device import Device, cpu_device
from swarm.errors import Refused
from swarm.judge.clock import SHARED, CoreClock
from swarm.judge.timing import Contradicted
from swarm.languages.protocol import Failure
from swarm.verdict import Status

DEVICE = cpu_device()
LIE = Contradicted(Status.REWARD_HACK, "the clock saw more")


@contextmanager
def hog(device: Device) -> Iterator[None]:
    """Keep the device's cores at work, from a process that is not below this one."""
    code = f"import os\nos.sched_setaffinity(0, {set(device.cores)})\nwhile True: pass"
    shell = f'{sys.executable} -c "{code}" >/dev/null 2>&1 & echo $!'
    pid = int(subprocess.run(["setsid", "sh", "-c", shell], capture_output=True, check=True).stdout)
    try:
        yield
    finally:
        os.kill(pid, 9)


def work(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def test_what_others_do_on_the_cores_excuses_a_contradiction() -> None:
    clock = CoreClock(DEVICE)
    with hog(DEVICE), clock.measuring():
        time.sleep(1.0)
        assert clock.foreign_share > SHARED
        with pytest.raises(Refused, match="other work had"):
            clock.check_alone(LIE)
        clock.check_alone(Failure(Status.REWARD_HACK, "it forged an answer"))  # no clock is needed for that
    assert float(clock.facts["foreign_share"]) > SHARED


def test_the_judges_own_processes_are_no_others() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, DEVICE.cores)
    try:
        code = "import time\nuntil = time.monotonic() + 0.5\nwhile time.monotonic() < until: pass"
        shares = []
        for _ in range(3):  # other work on the test machine may disturb one
            clock = CoreClock(DEVICE)
            with clock.measuring():
                work(0.3)
                subprocess.run([sys.executable, "-c", code], check=True)
                shares.append(clock.foreign_share)
            if shares[-1] < 0.5:
                break
        assert min(shares) < 0.5
    finally:
        os.sched_setaffinity(0, cores)
