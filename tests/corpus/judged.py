"""Runs cases through the real judge: one warm judge for each kind of device."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swarm import verdict
from swarm.device import Device, cpu_device, why_no_gpu
from swarm.errors import Refused
from swarm.job import Job, Purpose, Tree
from swarm.judge import peaks as calibration
from swarm.judge.judge import Judge
from swarm.sol import Peaks
from swarm.verdict import Status, Verdict
from tests.corpus.cases import Case, champion

ROOT = Path(__file__).parents[2]
PROBLEMS = Path(__file__).parent / "problems"
CPU_PEAKS = {"bandwidth_gbps": 200.0, "gflops": {"float32": 1e6}, "source": "beyond any CPU, for tests"}
"""Calibrated ones would depend on what else runs here; a lie is still far below these."""
BUDGET_S = {"cpu": 0.1, "gpu": 0.3}
NATIVE_S = 3.0
"""What one request of a `cpp` candidate may take, so that those which hang end soon."""
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case ended."""

    status: Status | verdict.Outcome
    """Of a comparison in which neither side failed, its outcome."""
    reason: str
    log: str
    ms: float

    def meets(self, case: Case) -> bool:
        return self.status is case.status and re.search(case.reason, self.reason) is not None


def devices() -> dict[str, Device]:
    """Return the device of each kind that is here: `cpu`, and the first `gpu`."""
    found = {"cpu": cpu_device()}
    if not why_no_gpu():
        from swarm.judge.cuda.devices import cuda_devices  # needs a driver

        found["gpu"] = cuda_devices()[0]
    return found


@contextmanager
def judges(folder: Path) -> Iterator[Callable[[Case], Outcome]]:
    """Yield what judges a case; each judge starts with the first case for its device."""
    cores = os.sched_getaffinity(0)  # a CPU's judge pins its process
    open_judges: dict[str, Judge] = {}
    with ExitStack() as stack:

        def judged(case: Case) -> Outcome:
            if case.on not in open_judges:
                open_judges[case.on] = stack.enter_context(_open(case.on, folder))
                open_judges[case.on].warm_up()
            return _judged(open_judges[case.on], case)

        try:
            yield judged
        finally:
            os.sched_setaffinity(0, cores)


def _open(on: str, folder: Path) -> Judge:
    device = devices()[on]
    cache = folder / on
    if on == "cpu":
        return Judge(device, cache, Peaks(device.model, **CPU_PEAKS))
    return Judge(device, cache, calibration.load(cache / "peaks.json", device, cache))


def _judged(judge: Judge, case: Case) -> Outcome:
    """Judge a case, again where other work on the same cores made the judge refuse to say."""
    for attempt in range(1, ATTEMPTS + 1):
        begun = time.monotonic()
        try:
            record = judge.judge(job(case))
        except Refused:
            if attempt == ATTEMPTS:
                raise
            continue
        ms = (time.monotonic() - begun) * 1e3
        if isinstance(record, Verdict):
            return Outcome(record.status, record.reason, record.log, ms)
        return Outcome(record.failure or record.outcome, record.reason, "", ms)
    raise AssertionError("unreachable")


def job(case: Case) -> Job:
    """Return what a watcher would hand to the judge for this case."""
    files = problem_files(case.problem, case.on, case.language)
    epoch = hashlib.sha256(b"\0".join(sorted(files.values()))).hexdigest()
    purpose = Purpose.COMPARISON if case.via == "comparison" else Purpose.VERDICT
    against = champion(case) if purpose is Purpose.COMPARISON else None
    return Job(
        case.name,
        purpose,
        case.problem,
        epoch,
        files,
        _tree(case),
        None if against is None else _tree(against),
    )


@cache
def problem_files(problem: str, on: str, language: str) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in (PROBLEMS / problem).iterdir()}
    return files | {"COORDINATION.md": coordination(on, language).encode()}


def coordination(on: str, language: str) -> str:
    """Return the project's protocol with less time for each workload."""
    text = _with(_project_protocol(), "budget_s", BUDGET_S[on])
    return _with(text, "run_timeout_s", NATIVE_S) if language == "cpp" else text


@cache
def _project_protocol() -> str:
    return (ROOT / "COORDINATION.md").read_text()


def _with(text: str, key: str, value: float) -> str:
    changed, count = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
    assert count == 1, f"COORDINATION.md sets {key} {count} times"
    return changed


def _tree(case: Case) -> Tree:
    sha = hashlib.sha1(repr(sorted(case.files.items())).encode()).hexdigest()
    return Tree(sha, sha, case.files)
