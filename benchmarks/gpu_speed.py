"""How soon a tree has its verdict, how many an hour, and what a large problem takes of the GPU's memory."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu_jobs import Bench, Part, Row, large
from benchmarks.variants import variant
from swarm.device import Device
from swarm.judge import peaks
from swarm.pool.local import LocalPool
from swarm.pool.protocol import Done
from swarm.verdict import Status, Verdict
from tests.gpu import trees

CALLS, LEAST_TREES = 50, 3
WITHIN_S = {"cuda": 2.0, "cuda_cpp": 4.0, "triton": 7.0}
VERDICTS_AN_HOUR = 1500.0
LARGE_ROWS, LARGE_COLS = 4096, 1 << 20
SAMPLE_S = 0.02


def latency(bench: Bench, count: int) -> Part:
    """Hand in texts that no compiler has seen, one by one: 14 workloads, 50 checked calls of each."""
    problem = trees.problem("rmsnorm")
    rules = {"min_calls": CALLS, "max_calls": CALLS, "budget_s": 10.0}
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    for index, (language, within_s) in enumerate(WITHIN_S.items()):
        end_s = bench.until_s(index, len(WITHIN_S))
        tree = trees.solution(f"rmsnorm/{language}")
        bench.verdict(problem, variant(tree, 0), f"warm-{language}", **rules)
        seconds, measured_s, times = [], [], {}
        for number in range(1, count + 1):
            if time.monotonic() > end_s and number > LEAST_TREES:
                break
            verdict, took_s = bench.verdict(problem, variant(tree, number), f"{language}-{number}", **rules)
            seconds.append(took_s)
            measured_s.append(verdict.measured_s)
            times = {item.uuid: item.time_us for item in verdict.workloads}
            assert min(item.calls for item in verdict.workloads) >= CALLS
        median_s = statistics.median(seconds)
        seen = f"{median_s:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)} trees)"
        rows.append((f"tree to verdict, {language}", f"{within_s:g} s", seen, median_s <= within_s))
        figures[language] = {"seconds": seconds, "device_held_s": measured_s, "time_us": times}
    return Part(rows, figures)


def queue(bench: Bench, count: int) -> Part:
    """Put distinct trees of one problem into a pool at once."""
    problem, tree = trees.problem("rmsnorm"), trees.solution("rmsnorm/cuda")
    cache = bench.folder / "queue"
    limits = peaks.to_json(peaks.load(bench.folder / "peaks.json", bench.device, cache))
    pool = LocalPool([bench.device], cache, {bench.device.model: limits}, bench.folder / "logs")
    try:
        pool.submit(trees.job(problem, variant(tree, 0), name="queue-warm"))
        _finish(pool, 1, math.inf)
        with watched(bench.device) as seen:
            begun_s = time.monotonic()
            for number in range(1, count + 1):
                pool.submit(trees.job(problem, variant(tree, number), name=f"queue-{number}"))
            verdicts = _finish(pool, count, bench.deadline_s)
            took_s = time.monotonic() - begun_s
    finally:
        pool.close()
    passed = sum(item.status is Status.PASSED for item in verdicts)
    an_hour = 3600 * passed / took_s
    held = sum(item.measured_s for item in verdicts) / took_s
    called_s = sum((w.time_us or 0) * w.calls for item in verdicts for w in item.workloads) / 1e6
    name = f"verdicts an hour, {len(verdicts)} of {count} distinct trees"
    told = f"busy {seen.busy_share:.0%}, held {held:.0%}, in timed calls {called_s / took_s:.1%}"
    return Part(
        [
            (
                name,
                f"{VERDICTS_AN_HOUR:g}",
                f"{an_hour:.0f}",
                passed == len(verdicts) and an_hour >= VERDICTS_AN_HOUR,
            ),
            ("  of that time the GPU is", "-", told, None),
        ],
        {
            "passed": passed,
            "wall_s": took_s,
            "an_hour": an_hour,
            "busy_share": seen.busy_share,
            "held_share": held,
            "share_in_timed_calls": called_s / took_s,
            "measured_s": [item.measured_s for item in verdicts],
        },
    )


def memory(bench: Bench, _: int) -> Part:
    """Judge a problem of 8.6 GB of inputs and see what the GPU's memory grows to."""
    problem, tree = large(LARGE_ROWS, LARGE_COLS)
    inputs = 2 * LARGE_ROWS * LARGE_COLS
    with watched(bench.device) as seen:
        verdict, took_s = bench.verdict(problem, tree, "large")
    grown = seen.peak_bytes - seen.first_bytes
    [workload] = verdict.workloads
    told = f"{grown / 1e9:.1f} GB more at the most, {took_s:.1f} s, {workload.calls} calls"
    wanted = f"below {2 * inputs / 1e9:.1f} GB"
    return Part(
        [(f"a problem of {inputs / 1e9:.1f} GB", wanted, told, grown < 2 * inputs)],
        {
            "input_bytes": inputs,
            "grown_bytes": grown,
            "seconds": took_s,
            "time_us": workload.time_us,
            "calls": workload.calls,
        },
    )


def _finish(pool: LocalPool, count: int, deadline_s: float) -> list[Verdict]:
    """Return the verdicts that come by then; at least one."""
    verdicts: list[Verdict] = []
    while len(verdicts) < count and (not verdicts or time.monotonic() < deadline_s):
        for item in pool.poll(1.0):
            if not isinstance(item, Done):
                raise RuntimeError(f"{item.job.id} was lost: {item.reason}")
            assert isinstance(item.record, Verdict)
            verdicts.append(item.record)
    return verdicts


@dataclass(slots=True)
class Seen:
    """What NVML said meanwhile."""

    first_bytes: int = 0
    peak_bytes: int = 0
    busy: list[int] = field(default_factory=list)

    @property
    def busy_share(self) -> float:
        """How much of the time some kernel ran, flushes and delays among them."""
        return statistics.fmean(self.busy) / 100 if self.busy else 0.0


@contextmanager
def watched(device: Device) -> Iterator[Seen]:
    """Sample the device's memory and load until the block ends."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
    seen, over = Seen(), threading.Event()
    seen.first_bytes = seen.peak_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            seen.peak_bytes = max(seen.peak_bytes, int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))
            seen.busy.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        pynvml.nvmlShutdown()
