"""Several devices in one pool. Here they are CPU devices of different cores; what they share is the queue.

Their times say nothing: two judges on two cores of one machine disturb each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from swarm.device import Device, cpu_device
from swarm.errors import BadInput
from swarm.job import Purpose
from swarm.judge.peaks import to_json
from swarm.languages.toolchain import cores_beside
from swarm.pool import local
from swarm.pool.local import MAX_COMPILERS, LocalPool, compilers
from swarm.pool.protocol import Done, Lost
from swarm.verdict import Status, Verdict
from tests.judge.test_judge import HONEST, PEAKS, tree
from tests.test_local_pool import finished, numbered

CORES = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core is one CPU device")


def on(*cores: int) -> Device:
    return cpu_device(frozenset((-1, *cores)))  # the first of those available is kept for everything else


def pair() -> list[Device]:
    return [on(CORES[0]), on(CORES[1])]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))

    def pool(*devices: Device) -> closing[LocalPool]:
        peaks = {device.model: to_json(PEAKS) for device in devices}
        return closing(LocalPool(devices, tmp_path / "cache", peaks, tmp_path / "logs"))

    yield pool


def different(number: int) -> str:
    """A kernel of its own: nothing of it comes from the cache."""
    return f"{HONEST} // {number}"


@needs_two_cores
def test_two_devices_work_on_one_queue_and_every_job_is_done_once(make) -> None:  # type: ignore[no-untyped-def]
    devices = pair()
    assert devices[0].model == devices[1].model and devices[0].uuid != devices[1].uuid
    with make(*devices) as pool:
        for number in range(8):
            pool.submit(numbered(number, different(number)))
        comparison = replace(numbered(8), purpose=Purpose.COMPARISON, champion=tree(HONEST))
        pool.submit(comparison)
        found = finished(pool, 9)
        states = pool.devices()
    records = [item.record for item in found if isinstance(item, Done)]
    assert sorted(item.job.id for item in found) == [f"job-{number}" for number in range(9)]
    assert {r.status for r in records if isinstance(r, Verdict)} == {Status.PASSED}
    assert {r.environment.device_uuid for r in records} == {device.uuid for device in devices}
    assert sum(state.done for state in states) == 9 and all(state.done for state in states)
    for record in records:
        device = next(d for d in devices if d.uuid == record.environment.device_uuid)
        assert record.environment.facts["cores"] == ",".join(map(str, device.cores))


@needs_two_cores
def test_what_a_broken_device_cannot_do_is_done_by_the_other(make) -> None:  # type: ignore[no-untyped-def]
    sound, _ = pair()
    broken = replace(sound, uuid="cpu-broken", cores=(4095,))  # its judge can never be pinned to that
    with make(broken, sound) as pool:
        for number in range(3):
            pool.submit(numbered(number, different(number)))
        found = finished(pool, 3)
        states = pool.devices()
    assert all(isinstance(item, Done) for item in found)
    assert {i.record.environment.device_uuid for i in found if isinstance(i, Done)} == {sound.uuid}
    assert [state.done for state in states] == [0, 3]


@needs_two_cores
def test_what_no_device_can_do_is_lost_once_with_the_reason(make) -> None:  # type: ignore[no-untyped-def]
    with make(*pair()) as pool:
        pool.submit(replace(numbered(1), problem_files={}, epoch="broken"))
        pool.submit(numbered(2))
        lost, done = sorted(finished(pool, 2), key=lambda item: item.job.id)
        time.sleep(0.2)
        assert pool.poll(0.0) == [] and pool.queued() == 0
    assert isinstance(lost, Lost) and "COORDINATION.md" in lost.reason
    assert isinstance(done, Done)


def test_devices_that_cannot_be_compared_are_refused_by_name(make) -> None:  # type: ignore[no-untyped-def]
    h200 = Device("cuda", "nvidia-h200", "GPU-1", (1,), "sm_90a")
    b200 = Device("cuda", "nvidia-b200", "GPU-2", (2,), "sm_100a")
    with pytest.raises(BadInput, match=r"nvidia-b200 \(GPU-2\) and nvidia-h200 \(GPU-1\)"):
        make(h200, b200)
    with pytest.raises(BadInput, match="GPU-1 is named twice"):
        make(h200, h200)
    with pytest.raises(BadInput, match="needs a device"):
        make()


def test_compilers_take_the_spare_cores_but_not_all_of_many() -> None:
    host = frozenset(range(16))
    device = Device("cuda", "m", "GPU-1", (0, 1, 2, 3), "sm_90a")
    other = replace(device, uuid="GPU-2", cores=(4, 5, 6, 7, 8, 9))
    assert compilers([device, other], host) == MAX_COMPILERS
    assert compilers([replace(device, cores=tuple(range(14)))], host) == 2
    assert compilers([replace(device, cores=tuple(range(16)))], host) == 1


@needs_two_cores
def test_a_compiler_keeps_to_the_cores_of_the_thread_that_asks() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {CORES[0]})
        assert cores_beside(on(CORES[1])) == [CORES[0]]
        os.sched_setaffinity(0, {CORES[1]})  # as a judge is: its own cores are no place for compilers
        assert CORES[1] not in cores_beside(on(CORES[1]))
    finally:
        os.sched_setaffinity(0, before)


SLOW_TO_COMPILE = (
    "#include <algorithm>\n#include <functional>\n"
    "template <int N> struct S {{ static int f(int x) {{ return S<N - 1>::f(x * N + {0}) ^ x; }} }};\n"
    "template <> struct S<0> {{ static int f(int x) {{ return x; }} }};\n"
    "volatile int sink{0} = S<800>::f({0});\n"
)


def test_compilers_work_beside_each_other(make, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Two trees are compiled at a time, whatever the judge does meanwhile."""
    monkeypatch.setattr(local, "compilers", lambda devices: 2)  # as with two cores to spare
    device = on(CORES[-1])
    with make(device) as pool:
        for number in range(4):
            job = numbered(number, different(number))
            source = SLOW_TO_COMPILE.format(number).encode() + job.candidate.files["kernel.cpp"]
            files = job.candidate.files | {"kernel.cpp": source}
            pool.submit(replace(job, candidate=replace(job.candidate, files=files)))
        most, found = 0, []
        deadline = time.monotonic() + 200
        while len(found) < 4 and time.monotonic() < deadline:
            found += pool.poll(0.02)
            names = [_name(process) for process in psutil.Process().children(recursive=True)]
            most = max(most, names.count("cc1plus"))
    assert len(found) == 4 and all(isinstance(item, Done) for item in found)
    assert most >= 2


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
