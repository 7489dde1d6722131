"""A runner process where there is no GPU: it says so in one line, as a fault of ours, and is gone."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator

import pytest

from swarm import sandbox
from swarm.device import Device
from swarm.errors import Refused
from swarm.judge.cuda.process import Host, Process, Shelf
from swarm.languages.protocol import Failure, Kind
from tests.boxes import levels

pytest.importorskip("cuda.bindings")
DEVICE = Device("cuda", "absent", "GPU-0", tuple(sorted(os.sched_getaffinity(0))))


@pytest.fixture
def process(at: sandbox.Level) -> Iterator[Process]:
    made = Process(Shelf(DEVICE, b"", (), at), Host.BARE)
    yield made
    made.close()


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has a driver")
@levels
def test_a_missing_driver_is_told(process: Process) -> None:
    with pytest.raises(Refused, match="a runner did not start: no CUDA driver"):
        process.wait_idle()
    process.close()
    assert process.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@levels
def test_a_runner_that_dies_while_it_waits_is_noticed(process: Process) -> None:
    while process.pid is None:
        assert not isinstance(process.receive(30), Failure)
    process.signal(9)
    failure = process.receive(30)
    while not isinstance(failure, Failure):
        failure = process.receive(30)
    assert "SIGKILL" in failure.reason or "exit code 0" in failure.reason
    assert process.receive(30) is failure
    assert process.send(b"") is failure
    with pytest.raises(Refused, match="a runner did not start"):
        process.wait_idle()


def test_every_kind_has_a_host() -> None:
    assert {kind: Host.of(kind) for kind in Kind} == {
        Kind.PLAN: Host.BARE,
        Kind.SHARED_OBJECT: Host.NATIVE,
        Kind.PYTHON: Host.TORCH,
        Kind.TORCH_EXTENSION: Host.TORCH,
    }
