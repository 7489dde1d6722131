"""The pool of this host: real judge processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from swarm.job import Job, Purpose
from swarm.judge.peaks import to_json
from swarm.pool.local import LocalPool
from swarm.pool.protocol import Done, Lost
from swarm.verdict import Comparison, Status, Verdict
from tests.judge.test_judge import DEVICE, HONEST, PEAKS, job, tree

LONGEST_S = 200.0


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalPool]:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    peaks = {DEVICE.model: to_json(PEAKS)}
    with closing(LocalPool([DEVICE], tmp_path / "cache", peaks, tmp_path / "logs")) as made:
        yield made


def finished(pool: LocalPool, count: int) -> list[Done | Lost]:
    found: list[Done | Lost] = []
    deadline = time.monotonic() + LONGEST_S
    while len(found) < count and time.monotonic() < deadline:
        found += pool.poll(1.0)
    assert len(found) == count, "the pool did not finish its jobs"
    return found


def numbered(number: int, body: str = HONEST) -> Job:
    return replace(job(body), id=f"job-{number}")


def judges() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "swarm.judge.main" in child.cmdline():
                found.append(child)
    return found


def test_jobs_come_back_as_records_and_a_comparison_overtakes(pool: LocalPool) -> None:
    verdicts = [numbered(1), numbered(2, "this is not C++"), numbered(3)]
    for one in verdicts:
        pool.submit(one)
    comparison = replace(numbered(4), purpose=Purpose.COMPARISON, champion=tree(HONEST))
    pool.submit(comparison)
    assert pool.queued() == 4
    found = finished(pool, 4)
    assert pool.queued() == 0
    records = {item.job.id: item.record for item in found if isinstance(item, Done)}
    assert isinstance(records["job-4"], Comparison)
    assert isinstance(records["job-1"], Verdict) and records["job-1"].status is Status.PASSED
    assert isinstance(records["job-2"], Verdict) and records["job-2"].status is Status.COMPILE_ERROR
    assert found[-1].job.id != "job-4"
    [state] = pool.devices()
    assert (state.done, state.job_id) == (4, None)
    assert state.busy_s > 0


def test_a_judge_that_is_killed_is_replaced_and_its_job_is_judged_once(pool: LocalPool) -> None:
    pool.submit(numbered(1))
    finished(pool, 1)
    [judge] = judges()
    pool.submit(numbered(2))
    os.kill(judge.pid, signal.SIGKILL)
    pool.submit(numbered(3))
    assert sorted(item.job.id for item in finished(pool, 2) if isinstance(item, Done)) == ["job-2", "job-3"]
    [other] = judges()
    assert other.pid != judge.pid


def test_a_job_that_is_no_problem_is_lost_with_the_reason_and_the_judge_lives(pool: LocalPool) -> None:
    pool.submit(replace(numbered(1), problem_files={}, epoch="broken"))
    pool.submit(numbered(2))
    lost, done = sorted(finished(pool, 2), key=lambda item: item.job.id)
    assert isinstance(lost, Lost) and "COORDINATION.md" in lost.reason
    assert isinstance(done, Done)


def test_closing_leaves_no_process_behind(pool: LocalPool) -> None:
    pool.submit(numbered(1))
    while not judges():
        time.sleep(0.05)
    before = [each for judge in judges() for each in (judge, *judge.children(recursive=True))]
    assert before
    pool.close()
    _, alive = psutil.wait_procs(before, timeout=20)
    assert alive == []


def test_what_cannot_be_compiled_ahead_does_not_hold_up_the_others(pool: LocalPool) -> None:
    files = numbered(1).problem_files | {"COORDINATION.md": b"\xff is not UTF-8"}
    pool.submit(replace(numbered(1), epoch="broken", problem_files=files))
    pool.submit(numbered(2))
    found = {item.job.id: item for item in finished(pool, 2)}
    assert isinstance(found["job-1"], Lost)
    assert isinstance(found["job-2"], Done)
